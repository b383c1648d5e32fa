# Makes a table in Markdown of what programs measured, and judges it by the bounds below.
#
#     sort -k 1,3 -k 4,4g SAMPLES | awk -v columns=… -v verdicts=FILE -f gpu-judge.awk
#
# A sample is `program row column number`; of those with the same three names the median counts. `columns` are apart by spaces, each
# `caption:program:column`, or `caption:program:column/program:column` for a ratio. A caption's `_` are shown as spaces.
# A row is a size, or `op,size`. Verdicts are lines of `missed` or `unjudged`, row, caption, ratio and bound, apart by tabs.

BEGIN {
    # What is wanted: caption, sizes from and to, how, bound. Up to 65536 elements a step is some 20 µs, of which one is 5 %.
    want("graph/C++", 0, 65536, "at most", 1.10)
    want("graph/C++", 65537, 1e18, "at most", 1.03)
    want("eager/C++", 0, 65536, "at most", 1.15)
    want("eager/C++", 65537, 1e18, "at most", 1.05)
    want("queued/C++", 0, 65536, "at most", 1.10)
    want("queued/C++", 65537, 1e18, "at most", 1.03)
    want("packed/PyTorch graph", 0, 1e18, "under", 1.00)
    want("squall/nccl-tests", 268435456, 268435456, "at least", 0.97)
}

function want(caption, from, to, how, bound) {
    wants++
    of[wants] = caption; least[wants] = from; most[wants] = to; relation[wants] = how; limit[wants] = bound
}

# The number of the bound for a cell, or 0.
function wanted(caption, row,    size, w) {
    size = row
    sub(/.*,/, "", size)
    for (w = 1; w <= wants; w++) if (of[w] == caption && size + 0 >= least[w] && size + 0 <= most[w]) return w
    return 0
}

function kept(ratio, w) {
    if (relation[w] == "under") return ratio < limit[w]
    return relation[w] == "at most" ? ratio <= limit[w] : ratio >= limit[w]
}

function verdict(what, row, caption, shown, bound) {
    printf "%s\t%s\t%s\t%s\t%s\n", what, row, caption, shown, bound >verdicts
}

# The median of the key that has ended.
function put() {
    if (n) median[key] = n % 2 ? value[(n + 1) / 2] : (value[n / 2] + value[n / 2 + 1]) / 2
}

NF == 4 {
    this = $1 SUBSEP $2 SUBSEP $3
    if (this != key) { put(); key = this; n = 0 }
    value[++n] = $4
    if (!($2 in seen)) { seen[$2] = 1; rows[++count] = $2 }
}

function cell(row, what,    part) {
    split(what, part, ":")
    return (part[1], row, part[2]) in median ? median[part[1], row, part[2]] : ""
}

function ratio_cell(row, caption, one, other,    w, bound, shown) {
    w = wanted(caption, row)
    bound = w ? sprintf("%s %.2f", relation[w], limit[w]) : ""
    if (one == "" || other + 0 == 0) {
        if (w) verdict("unjudged", row, caption, "-", bound)
        return ""
    }
    shown = sprintf("%.3f", one / other)
    if (!w) return shown
    if (kept(one / other, w)) return shown " (" bound ")"
    verdict("missed", row, caption, shown, bound)
    return "**" shown ", wanted " bound "**"
}

# Whether a row is shown after another: by op, then by size.
function after(row, other,    a, b) {
    if (split(row, a, ",") == 1) return row + 0 > other + 0
    split(other, b, ",")
    return a[1] == b[1] ? a[2] + 0 > b[2] + 0 : a[1] "" > b[1] ""
}

END {
    put()
    shown_columns = split(columns, column, " ")
    head = "| |"; rule = "|---:|"
    for (c = 1; c <= shown_columns; c++) {
        at = index(column[c], ":")
        caption[c] = substr(column[c], 1, at - 1); gsub("_", " ", caption[c])
        what[c] = substr(column[c], at + 1)
        head = head " " caption[c] " |"; rule = rule "---:|"
    }
    print head; print rule
    for (r = 1; r <= count; r++) for (s = r + 1; s <= count; s++) if (after(rows[r], rows[s])) { t = rows[r]; rows[r] = rows[s]; rows[s] = t }
    for (r = 1; r <= count; r++) {
        line = "| " rows[r] " |"
        for (c = 1; c <= shown_columns; c++) {
            two = split(what[c], part, "/")
            one = cell(rows[r], part[1])
            if (two == 2) text = ratio_cell(rows[r], caption[c], one, cell(rows[r], part[2]))
            else text = one == "" ? "" : sprintf("%.1f", one)
            line = line (text == "" ? "" : " " text) " |"
        }
        print line
    }
}
