//! Whether the parts of a library in the ELF format fit each other. The system maps and follows them without a look: one that lies elsewhere
//! ends the process, or never comes back.

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::{Endianness, FileKind};

/// The largest alignment of a segment, which is that of large pages.
const MOST_ALIGNED: u64 = 2 << 20;
/// The longest span of memory that a plugin takes, and what of it each thread has for itself.
const MOST_MEMORY: u64 = 4 << 30;
const MOST_PER_THREAD: u64 = 16 << 20;

/// Where a part lies in the file and in memory.
#[derive(Clone, Copy)]
struct Part {
    offset: u64,
    address: u64,
    in_file: u64,
    in_memory: u64,
    align: u64,
}

impl Part {
    fn is_sane(self, file: u64) -> bool {
        let end = |from: u64, len: u64| from.checked_add(len);
        self.in_file <= self.in_memory
            && end(self.offset, self.in_file).is_some_and(|end| end <= file)
            && end(self.address, self.in_memory).is_some_and(|end| end <= MOST_MEMORY)
            && (self.align <= 1 || self.align.is_power_of_two() && self.align <= MOST_ALIGNED)
    }

    /// Whether `part` is mapped by this one, at the place where it says that it is.
    fn maps(self, part: Part) -> bool {
        let shift = |offset: u64, base: u64| offset.checked_sub(base);
        shift(part.offset, self.offset).is_some_and(|inside| {
            shift(part.address, self.address) == Some(inside)
                && inside.checked_add(part.in_file).is_some_and(|end| end <= self.in_file)
        })
    }
}

/// What is wrong with a library's segments, if something is. Of other formats and of 32 bits nothing is known.
pub(super) fn fault(bytes: &[u8]) -> Option<&'static str> {
    if FileKind::parse(bytes) != Ok(FileKind::Elf64) {
        return None;
    }
    let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let Ok(parts) = header.program_headers(endian, bytes) else { return Some("it has no list of segments") };
    let part = |header: &elf::ProgramHeader64<Endianness>| Part {
        offset: header.p_offset(endian),
        address: header.p_vaddr(endian),
        in_file: header.p_filesz(endian),
        in_memory: header.p_memsz(endian),
        align: header.p_align(endian),
    };
    let file = bytes.len() as u64;
    let (mut loads, mut end): (Vec<Part>, u64) = (Vec::new(), 0);
    for header in parts.iter().filter(|header| header.p_type(endian) == elf::PT_LOAD) {
        let load = part(header);
        let aligned = load.align <= 1 || load.offset % load.align == load.address % load.align;
        if !load.is_sane(file) || !aligned || load.address < end {
            return Some("its segments do not follow each other");
        }
        end = load.address + load.in_memory;
        loads.push(load);
    }
    let (mut dynamic, mut threads) = (0, false);
    for header in parts {
        let kind = header.p_type(endian);
        let within = match kind {
            elf::PT_DYNAMIC | elf::PT_TLS | elf::PT_GNU_RELRO | elf::PT_GNU_EH_FRAME | elf::PT_PHDR => {
                part(header)
            }
            _ => continue,
        };
        let Some(load) = loads.iter().find(|load| within.is_sane(file) && load.maps(within)) else {
            return Some("a part of it lies outside of its segments");
        };
        // What threads have for themselves is no memory of the segment.
        let longest = match kind {
            elf::PT_TLS => MOST_PER_THREAD,
            _ => (load.address + load.in_memory).next_multiple_of(load.align.max(1)) - within.address,
        };
        if within.in_memory > longest {
            return Some("a part of it is longer than its segment");
        }
        dynamic += usize::from(kind == elf::PT_DYNAMIC);
        threads |= kind == elf::PT_TLS;
    }
    if dynamic != 1 || loads.is_empty() {
        return Some("it does not say what to link");
    }
    // The sections, where they are listed, say the same once more.
    let sections = header.section_headers(endian, bytes).unwrap_or_default();
    for header in sections.iter().filter(|header| header.sh_flags(endian) & u64::from(elf::SHF_ALLOC) != 0) {
        let (empty, size) = (header.sh_type(endian) == elf::SHT_NOBITS, header.sh_size(endian));
        let (offset, address) = (header.sh_offset(endian), header.sh_addr(endian));
        let section = Part { offset, address, in_file: size, in_memory: size, align: 1 };
        let own = header.sh_flags(endian) & u64::from(elf::SHF_TLS) != 0;
        if own && !threads || !empty && !loads.iter().any(|load| section.is_sane(file) && load.maps(section))
        {
            return Some("its segments lack a section");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of a segment at a place of a library: where it begins.
    fn headers(bytes: &[u8]) -> (usize, usize) {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        (word(0x20), usize::from(u16::from_le_bytes([bytes[0x38], bytes[0x39]])))
    }

    #[test]
    #[cfg(all(target_os = "linux", target_endian = "little", target_pointer_width = "64"))]
    fn this_program_is_sound_and_not_with_a_segment_elsewhere() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(fault(&bytes), None);
        assert_eq!(fault(&bytes[..bytes.len() / 16]), Some("its segments do not follow each other"));
        let (first, count) = headers(&bytes);
        let mut seen = 0;
        for segment in (0..count).map(|at| first + at * 56) {
            let kind = u32::from_le_bytes(bytes[segment..segment + 4].try_into().unwrap());
            if ![elf::PT_LOAD, elf::PT_DYNAMIC, elf::PT_TLS].contains(&kind) {
                continue;
            }
            // Its place in the file, in memory, its sizes and its alignment, each far off.
            for field in [8, 16, 32, 40, 48] {
                let mut wrong = bytes.clone();
                wrong[segment + field + 5] = 0x7f;
                assert!(fault(&wrong).is_some(), "segment of kind {kind} at {segment}, field {field}");
                seen += 1;
            }
        }
        assert!(seen >= 15, "{seen}");
    }
}
