//! Prints a number in groups of three digits.

fn main() {
    let number: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).expect("a number");
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number).as_bytes();
    let words: Vec<String> =
        digits.rchunks(3).rev().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    println!("{number} in words of 3: {}", words.join(" "));
}
