//! The fields of a header block: texts, numbers, the checksum. Pure.

use std::io;

use super::{BLOCK, bad};

pub(super) fn check_sum(block: &[u8; BLOCK]) -> io::Result<()> {
    let claimed = number(&block[148..156])?;
    let (mut unsigned, mut signed) = (0u64, 0i64);
    for (at, &byte) in block.iter().enumerate() {
        let byte = if (148..156).contains(&at) { b' ' } else { byte };
        unsigned += u64::from(byte);
        signed += i64::from(byte as i8);
    }
    if claimed == unsigned || i64::try_from(claimed).is_ok_and(|c| c == signed) {
        Ok(())
    } else {
        Err(bad("a header whose checksum is wrong (not a tar archive, or a damaged one)"))
    }
}

pub(super) fn header_name(block: &[u8; BLOCK]) -> Vec<u8> {
    let name = until_nul(&block[..100]);
    // GNU's own format (ustar, two blanks) has times where POSIX has the prefix.
    if &block[257..263] == b"ustar\0" {
        let prefix = until_nul(&block[345..500]);
        if !prefix.is_empty() {
            return [prefix, b"/", name].concat();
        }
    }
    name.to_vec()
}

pub(super) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&b| b == 0).next().unwrap_or_default()
}

/// Octal digits, or GNU's base-256 with the top bit set; negative numbers are refused.
pub(super) fn number(field: &[u8]) -> io::Result<u64> {
    u64::try_from(signed_number(field)?).map_err(|_| bad("a negative number"))
}

pub(super) fn signed_number(field: &[u8]) -> io::Result<i64> {
    if field[0] & 0x80 != 0 {
        let negative = field[0] & 0x40 != 0;
        let mut value: i128 = if negative { -1 } else { 0 };
        for (at, &byte) in field.iter().enumerate() {
            let byte = if at == 0 && !negative { byte & 0x7f } else { byte };
            value = (value << 8) | i128::from(byte);
        }
        return i64::try_from(value).map_err(|_| bad("a number beyond 63 bits"));
    }
    let text: &[u8] = until_nul(field).trim_ascii();
    let mut value = 0i64;
    for &byte in text {
        if !(b'0'..=b'7').contains(&byte) {
            return Err(bad("a number that is not octal"));
        }
        value = value
            .checked_mul(8)
            .and_then(|v| v.checked_add(i64::from(byte - b'0')))
            .ok_or_else(|| bad("a number beyond 63 bits"))?;
    }
    Ok(value)
}

pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// `[-]SECONDS[.FRACTION]`.
pub(super) fn pax_time(text: &[u8]) -> io::Result<(i64, u32)> {
    let wrong = || bad("a damaged time in a pax header");
    let text = std::str::from_utf8(text).map_err(|_| wrong())?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let negative = whole.starts_with('-');
    let mut seconds: i64 = whole.parse().map_err(|_| wrong())?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let mut nanoseconds = 0u32;
    for at in 0..9 {
        nanoseconds = nanoseconds * 10 + fraction.as_bytes().get(at).map_or(0, |b| u32::from(b - b'0'));
    }
    if negative && nanoseconds > 0 {
        seconds = seconds.checked_sub(1).ok_or_else(wrong)?;
        nanoseconds = 1_000_000_000 - nanoseconds;
    }
    Ok((seconds, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times() {
        assert_eq!(signed_number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe").unwrap(), -2);
        assert_eq!(number(b"\x80\0\0\0\0\0\0\0\0\0\x01\0").unwrap(), 256);
        assert!(number(b"\x80\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff").is_err());
        assert_eq!(pax_time(b"1.5").unwrap(), (1, 500_000_000));
        assert_eq!(pax_time(b"-1.25").unwrap(), (-2, 750_000_000));
        assert!(pax_time(b"x").is_err());
    }
}
