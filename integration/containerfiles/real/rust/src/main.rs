fn main() {
    println!("sum {}", (1..=100).sum::<u32>());
}
