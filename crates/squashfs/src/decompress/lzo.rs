//! A decoder of LZO1X streams, as Documentation/staging/lzo.rst of Linux describes them.
//!
//! The crates that decode LZO are under the GPL, are C, or index out of bounds on a damaged stream.

/// Why a stream is none.
type Wrong = &'static str;

const CUT_OFF: Wrong = "the stream is cut off";
const TOO_LONG: Wrong = "the stream is longer than the block";

/// Decompresses `input` into `output` and returns how many bytes came out.
pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Result<usize, Wrong> {
    let mut stream = Stream { input, output, full: 0 };
    // How many literals the last instruction copied, where 4 stands for four and more. It decides what 0 to 15 mean.
    let mut literals = 0;
    if let Some(first @ 18..) = stream.input.first().copied() {
        stream.byte()?;
        let count = usize::from(first) - 17;
        stream.literals(count)?;
        literals = count.min(4);
    }
    loop {
        let instruction = usize::from(stream.byte()?);
        let (distance, length, next) = match (instruction, literals) {
            (64.., _) => {
                let distance = (usize::from(stream.byte()?) << 3) + (instruction >> 2 & 7) + 1;
                (distance, (instruction >> 5) + 1, instruction & 3)
            }
            (32.., _) => {
                let length = stream.length(instruction & 31, 31)? + 2;
                let word = stream.word()?;
                ((word >> 2) + 1, length, word & 3)
            }
            (16.., _) => {
                let length = stream.length(instruction & 7, 7)? + 2;
                let word = stream.word()?;
                let distance = 16384 + ((instruction & 8) << 11) + (word >> 2);
                if distance == 16384 {
                    return if length == 3 { Ok(stream.full) } else { Err("the end is not one") };
                }
                (distance, length, word & 3)
            }
            (_, 0) => {
                let length = stream.length(instruction, 15)? + 3;
                stream.literals(length)?;
                literals = 4;
                continue;
            }
            (_, 4) => ((usize::from(stream.byte()?) << 2) + (instruction >> 2) + 2049, 3, instruction & 3),
            _ => ((usize::from(stream.byte()?) << 2) + (instruction >> 2) + 1, 2, instruction & 3),
        };
        stream.copy(distance, length)?;
        stream.literals(next)?;
        literals = next;
    }
}

struct Stream<'a> {
    /// What is left to read.
    input: &'a [u8],
    output: &'a mut [u8],
    /// How many bytes of `output` are decoded.
    full: usize,
}

impl Stream<'_> {
    fn byte(&mut self) -> Result<u8, Wrong> {
        let (first, rest) = self.input.split_first().ok_or(CUT_OFF)?;
        self.input = rest;
        Ok(*first)
    }

    fn word(&mut self) -> Result<usize, Wrong> {
        let low = self.byte()?;
        Ok(usize::from(u16::from_le_bytes([low, self.byte()?])))
    }

    /// A length: that of the instruction, or where it is 0, `base` and the bytes that follow, of which each zero means
    /// 255 and the first other one ends it.
    fn length(&mut self, given: usize, base: usize) -> Result<usize, Wrong> {
        if given != 0 {
            return Ok(given);
        }
        let mut length = base;
        loop {
            match self.byte()? {
                0 => length += 255,
                last => return Ok(length + usize::from(last)),
            }
            if length > self.output.len() {
                return Err(TOO_LONG);
            }
        }
    }

    fn literals(&mut self, count: usize) -> Result<(), Wrong> {
        let (bytes, rest) = self.input.split_at_checked(count).ok_or(CUT_OFF)?;
        self.output.get_mut(self.full..self.full + count).ok_or(TOO_LONG)?.copy_from_slice(bytes);
        self.full += count;
        self.input = rest;
        Ok(())
    }

    /// Copies `length` bytes from `distance` bytes back; what is copied may overlap what is read.
    fn copy(&mut self, distance: usize, length: usize) -> Result<(), Wrong> {
        let from = self.full.checked_sub(distance).ok_or("a copy from before the block")?;
        let end = self.full + length;
        let window = self.output.get_mut(from..end).ok_or(TOO_LONG)?;
        if length <= distance {
            window.copy_within(..length, distance);
        } else {
            for n in distance..window.len() {
                window[n] = window[n - distance];
            }
        }
        self.full = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(input: &[u8]) -> Result<Vec<u8>, Wrong> {
        let mut output = [0; 64];
        decompress(input, &mut output).map(|n| output[..n].to_vec())
    }

    #[test]
    fn streams_are_decoded() {
        // Four literals, then a copy of 4 bytes from 4 back with one literal behind, then the end.
        let stream = [21, b'a', b'b', b'c', b'd', 0x6d, 0, b'x', 0x11, 0, 0];
        assert_eq!(decoded(&stream).unwrap(), b"abcdabcdx");
        // An overlapping copy repeats.
        assert_eq!(decoded(&[18, b'a', 0x20 | 6, 0, 0, 0x11, 0, 0]).unwrap(), b"aaaaaaaaa");
    }

    #[test]
    fn damaged_streams_are_errors() {
        assert_eq!(decoded(&[]), Err(CUT_OFF));
        assert_eq!(decoded(&[255]), Err(CUT_OFF));
        assert_eq!(decoded(&[18, b'a', 0x6d, 0]), Err("a copy from before the block"));
        assert_eq!(decoded(&[18, b'a', 0x20, 0, 0, 0, 0, 0]), Err(TOO_LONG));
        assert_eq!(decoded(&[18, b'a', 0x12, 0, 0]), Err("the end is not one"));
        // Whatever the bytes are, it ends.
        let mut seed = 1u32;
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..24)
                .map(|_| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (seed >> 24) as u8
                })
                .collect();
            let _ = decoded(&bytes);
        }
    }
}
