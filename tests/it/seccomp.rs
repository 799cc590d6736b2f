pub fn tests() -> Vec<crate::runner::Test> {
    Vec::new()
}
