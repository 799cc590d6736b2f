//! The arguments of a task as Slurm writes them into a pattern of oci.conf (`%@`), and in a form that every shell passes on
//! as it is.
//!
//! Slurm puts each argument into single quotes. For a quote in an argument it writes `'"'"'`, and then the quote once more
//! (runtime_oci.c, `_pattern_argv`), so a shell reads another text than was meant. Where a version writes no second one, the
//! text is read as a shell does.

use rt_sys::bail;
use rt_sys::error::Result;

/// What stands in front of the arguments in the pattern: to the shell it is the beginning of a comment.
pub const MARK: &[u8] = b" #arguments ";

/// A quote within single quotes, as a shell takes it.
const QUOTE: &[u8] = b"'\"'\"'";

/// The arguments in the text of a pattern, behind [`MARK`].
///
/// # Errors
/// The text has no arguments, or none as Slurm writes them.
pub fn of_pattern(pattern: &[u8]) -> Result<Vec<Vec<u8>>> {
    let Some(at) = pattern.windows(MARK.len()).position(|window| window == MARK) else {
        bail!("no arguments: the pattern has to end in {:?}", "#arguments %@");
    };
    let text = &pattern[at + MARK.len()..];
    match read(text, QUOTE).or_else(|| read(text, &[QUOTE, b"'"].concat())) {
        Some(arguments) => Ok(arguments),
        None => bail!("arguments {:?}: not as Slurm writes them", String::from_utf8_lossy(text)),
    }
}

/// The arguments in `text`, in which `quote` stands for a quote within an argument.
fn read(text: &[u8], quote: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.strip_prefix(b"'")?;
        let mut argument = Vec::new();
        loop {
            let end = rest.iter().position(|byte| *byte == b'\'')?;
            argument.extend_from_slice(&rest[..end]);
            rest = &rest[end..];
            match rest.strip_prefix(quote) {
                Some(behind) => {
                    argument.push(b'\'');
                    rest = behind;
                }
                None => break,
            }
        }
        all.push(argument);
        match rest.strip_prefix(b"'")? {
            [] => return Some(all),
            behind => rest = behind.strip_prefix(b" ")?,
        }
    }
}

/// `arguments` as one word of letters, digits and a few signs.
pub fn encode(arguments: &[Vec<u8>]) -> String {
    let mut text = String::new();
    for (n, argument) in arguments.iter().enumerate() {
        if n > 0 {
            text.push('+');
        }
        for byte in argument {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'/' | b'=' | b':' | b',' => {
                    text.push(char::from(*byte));
                }
                byte => text.push_str(&format!("%{byte:02x}")),
            }
        }
    }
    text
}

/// The arguments of such a word.
///
/// # Errors
/// It is no such word, or an argument is not UTF-8, as a config has to be.
pub fn decode(word: &str) -> Result<Vec<String>> {
    word.split('+').map(decode_one).collect()
}

fn decode_one(word: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((before, behind)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let digits = behind.get(..2).filter(|digits| digits.bytes().all(|c| c.is_ascii_hexdigit()));
        let number = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let Some(byte) = number else { bail!("{word:?}: % without two digits") };
        bytes.push(byte);
        rest = &behind[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(e) => bail!("argument {:?} is not UTF-8", String::from_utf8_lossy(e.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Slurm writes arguments; `twice` as up to now.
    fn written(arguments: &[&str], twice: bool) -> Vec<u8> {
        let quote = if twice { "'\"'\"''" } else { "'\"'\"'" };
        let quoted: Vec<String> = arguments.iter().map(|a| format!("'{}'", a.replace('\'', quote))).collect();
        format!("exec rt slurm task n.1.0.0 #arguments {}", quoted.join(" ")).into_bytes()
    }

    #[test]
    fn what_slurm_writes_is_read() {
        let all: [&[&str]; 9] = [
            &["id"],
            &["sh", "-c", "echo 'a b' && echo it's"],
            &["'"],
            &["a'", "'b", "c' 'd", "''", ""],
            &["x' y", "' '"],
            &["a\nb", "$x `y` \"z\" #arguments 'q'", "ä"],
            &["", ""],
            &["' '", "'", "' ' '"],
            &["a b", "%@", "\\"],
        ];
        for arguments in all {
            for twice in [true, false] {
                let read = of_pattern(&written(arguments, twice)).unwrap();
                let expected: Vec<Vec<u8>> = arguments.iter().map(|a| a.as_bytes().to_vec()).collect();
                assert_eq!(read, expected, "{arguments:?} {twice}");
                assert_eq!(decode(&encode(&read)).unwrap(), arguments);
            }
        }
    }

    #[test]
    fn what_is_no_list_of_arguments_is_refused() {
        for text in
            ["exec rt", "rt #arguments ", "rt #arguments id", "rt #arguments 'id", "rt #arguments 'a''b'"]
        {
            assert!(of_pattern(text.as_bytes()).is_err(), "{text}");
        }
        for word in ["%", "%4", "%xy", "%+a", "%ff"] {
            assert!(decode(word).is_err(), "{word}");
        }
        assert!(encode(&[b"a b'\n".to_vec(), Vec::new()]) == "a%20b%27%0a+");
    }
}
