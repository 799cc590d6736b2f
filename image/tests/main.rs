//! Black-box tests of `rt-image`.
