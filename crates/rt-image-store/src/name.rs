//! Names of images: in which registry one is, and how it is written as the name of a file.

use std::borrow::Cow;

use rt_sys::net::is_registry_host;

/// The longest name of a file (NAME_MAX).
const LONGEST: usize = 255;

/// The name `text` of an image in a registry with the configured one in front, where it names none: what `rt` looks up and
/// `rt-pull` asks for are then the same.
pub fn in_registry<'a>(text: &'a str, configured: Option<&str>) -> Cow<'a, str> {
    let text = text.strip_prefix("docker://").unwrap_or(text);
    let names_one =
        text.contains('#') || text.split_once('/').is_some_and(|(first, _)| is_registry_host(first));
    match configured.filter(|_| !names_one) {
        // A host such as `nas` would be read as a part of the repository.
        Some(registry) => {
            format!("{registry}{}{text}", if is_registry_host(registry) { '/' } else { '#' }).into()
        }
        None => text.into(),
    }
}

/// The file in `names` for the image `name`: percent-encoded, then a comma, and the platform. Without `platform` that is
/// the architecture of this machine, since machines of several share a home directory. None where it is too long for a
/// file's name; then only `rt-pull` finds it.
pub fn key(name: &str, platform: Option<&str>) -> Option<String> {
    Some(key_of_any_length(name, platform)).filter(|key| key.len() <= LONGEST)
}

/// The name of the file of [`key`], which may be too long for one.
pub fn key_of_any_length(name: &str, platform: Option<&str>) -> String {
    let mut key = String::with_capacity(name.len() + 24);
    escape(name, &mut key);
    key.push_str(&suffix(platform));
    key
}

/// What stands behind the name: of this machine's architecture `,x86_64`, and of a platform that was asked for
/// `,platform=linux%2Farm64`. An image for a machine like this one is another than that for this machine, which can have
/// a variant.
pub fn suffix(platform: Option<&str>) -> String {
    match platform {
        None => format!(",{}", std::env::consts::ARCH),
        Some(platform) => {
            let mut suffix = ",platform=".to_owned();
            escape(platform, &mut suffix);
            suffix
        }
    }
}

fn escape(text: &str, key: &mut String) {
    for byte in text.bytes() {
        match byte {
            // A dot in front would hide the file, and could make it `..`.
            b'.' if key.is_empty() => key.push_str("%2E"),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b':' | b'@' => {
                key.push(char::from(byte));
            }
            _ => {
                key.push('%');
                for digit in [byte >> 4, byte & 15] {
                    key.push(char::from_digit(u32::from(digit), 16).unwrap_or('0').to_ascii_uppercase());
                }
            }
        }
    }
}

/// The image and the suffix of its platform that a key stands for; none for what [`key`] does not make.
pub fn parse(key: &str) -> Option<(String, &str)> {
    let comma = key.find(',')?;
    let (name, suffix) = key.split_at(comma);
    Some((unescape(name)?, suffix)).filter(|(name, _)| !name.is_empty())
}

/// The platform of a suffix, for people.
pub fn platform(suffix: &str) -> Option<String> {
    match suffix.strip_prefix(",platform=") {
        Some(platform) => unescape(platform),
        None => suffix.strip_prefix(',').map(str::to_owned),
    }
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_file_name_and_leads_back() {
        let arch = std::env::consts::ARCH;
        for (name, platform, want) in [
            ("debian:12", None, format!("debian:12,{arch}")),
            ("docker.io/library/debian", None, format!("docker.io%2Flibrary%2Fdebian,{arch}")),
            ("..", None, format!("%2E.,{arch}")),
            ("me@ghcr.io#o/i:t", Some("linux/arm64"), "me@ghcr.io%23o%2Fi:t,platform=linux%2Farm64".into()),
            ("a,b%c d\u{e9}\n", None, format!("a%2Cb%25c%20d%C3%A9%0A,{arch}")),
        ] {
            let made = key(name, platform).unwrap();
            assert_eq!(made, want);
            let (back, suffix) = parse(&made).unwrap();
            assert_eq!(back, name);
            assert_eq!(super::platform(suffix).as_deref(), Some(platform.unwrap_or(arch)));
        }
        assert_eq!(key(&"x".repeat(255), None), None);
        for bad in ["", "x", ",x86_64", "%,x", "%4,x", "%zz,x", "%FF,x"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
