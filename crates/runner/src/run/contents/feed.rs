//! The rows that a feed gives, step by step.

use squall_core::Feed;

use crate::files::random::Stream;

/// What a feed does where its rows end.
pub(super) enum End {
    /// Goes on with the next epoch at once.
    Wrap,
    /// Every epoch has so many batches; what an epoch's rows do not fill of them is filled with `pad`, one element again and again.
    Epoch { batches: u64, pad: Vec<u8> },
}

/// The rows of one rank, in order or in an order of each epoch's own. What a step gets depends on its number alone, so that a
/// resumed run gets what it would have got.
pub(super) struct Rows {
    data: Vec<u8>,
    /// How many rows there are.
    rows: u64,
    /// Bytes of a row.
    row: usize,
    end: End,
    order: Option<Order>,
}

/// The order of an epoch's rows. Made anew when the epoch changes, in memory that is kept.
struct Order {
    stream: Stream,
    epoch: Option<u64>,
    rows: Vec<u64>,
}

impl Rows {
    /// A feed of so many rows, of `row` bytes each, that lie one after another in `data`; shuffled by `order`. `None` where there is
    /// no memory for that.
    pub(super) fn new(data: Vec<u8>, rows: u64, row: u64, end: End, order: Option<Stream>) -> Option<Rows> {
        let row = usize::try_from(row).ok()?;
        let order = match order {
            None => None,
            Some(stream) => {
                let (count, mut places) = (usize::try_from(rows).ok()?, Vec::new());
                places.try_reserve_exact(count).ok()?;
                places.resize(count, 0);
                Some(Order { stream, epoch: None, rows: places })
            }
        };
        Some(Rows { data, rows, row, end, order })
    }

    /// Copies rows of an epoch, from place `at` of its order on.
    fn copy(&mut self, epoch: u64, at: u64, out: &mut [u8]) {
        let length = self.row;
        let Some(order) = &mut self.order else {
            let start = at as usize * length;
            out.copy_from_slice(&self.data[start..start + out.len()]);
            return;
        };
        if order.epoch != Some(epoch) {
            order.stream.shuffle(epoch, &mut order.rows);
            order.epoch = Some(epoch);
        }
        for (out, &row) in out.chunks_exact_mut(length).zip(&order.rows[at as usize..]) {
            let start = row as usize * length;
            out.copy_from_slice(&self.data[start..start + length]);
        }
    }
}

impl Feed for Rows {
    fn fill(&mut self, step: u64, out: &mut [u8]) -> Result<(), String> {
        if out.is_empty() {
            return Ok(());
        }
        let batch = (out.len() / self.row) as u64;
        // The epoch, and the place in it, of the batch's first row: 128 bits, since a step may be any number.
        let (mut epoch, mut at) = match &self.end {
            End::Wrap if self.rows == 0 => return Err("there are no rows to give".to_owned()), // refused before
            End::Wrap => {
                let (row, rows) = (u128::from(step) * u128::from(batch), u128::from(self.rows));
                ((row / rows) as u64, (row % rows) as u64)
            }
            End::Epoch { batches, .. } => {
                let batches = (*batches).max(1);
                (step / batches, (step % batches).saturating_mul(batch))
            }
        };
        let mut rest = out;
        while !rest.is_empty() {
            if at >= self.rows {
                if let End::Epoch { pad, .. } = &self.end {
                    rest.chunks_exact_mut(pad.len().max(1)).for_each(|element| element.copy_from_slice(pad));
                    break;
                }
                (epoch, at) = (epoch.wrapping_add(1), 0);
            }
            let count = ((rest.len() / self.row) as u64).min(self.rows - at);
            let (now, later) = rest.split_at_mut(count as usize * self.row);
            self.copy(epoch, at, now);
            (rest, at) = (later, at + count);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
