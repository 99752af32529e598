//! Transposes of matrices in memory.

/// Rows and columns that are copied together, so that what is read and what is written both stay in the cache.
const BLOCK: usize = 32;

/// The bytes of a matrix `[columns, rows]` as those of its transpose `[rows, columns]`, for elements of `size` bytes.
pub(crate) fn transposed(bytes: &[u8], columns: usize, size: usize) -> Vec<u8> {
    let mut out = vec![0; bytes.len()];
    match size {
        2 => by_block::<2>(bytes, columns, &mut out),
        4 => by_block::<4>(bytes, columns, &mut out),
        _ => by_block::<8>(bytes, columns, &mut out),
    }
    out
}

fn by_block<const SIZE: usize>(bytes: &[u8], columns: usize, out: &mut [u8]) {
    let (from, to) = (bytes.as_chunks::<SIZE>().0, out.as_chunks_mut::<SIZE>().0);
    let rows = from.len() / columns.max(1);
    for first_row in (0..rows).step_by(BLOCK) {
        for first_column in (0..columns).step_by(BLOCK) {
            for row in first_row..(first_row + BLOCK).min(rows) {
                for column in first_column..(first_column + BLOCK).min(columns) {
                    to[row * columns + column] = from[column * rows + row];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_changes_places_whatever_its_size() {
        let (rows, columns) = (70, 33);
        for size in [2, 4, 8] {
            let element = |value: usize| (value as u64).to_le_bytes()[..size].to_vec();
            let matrix: Vec<u8> = (0..rows * columns).flat_map(element).collect();
            let turned = transposed(&matrix, columns, size);
            for row in 0..rows {
                for column in 0..columns {
                    let at = (row * columns + column) * size;
                    assert_eq!(turned[at..at + size], element(column * rows + row));
                }
            }
        }
    }
}
