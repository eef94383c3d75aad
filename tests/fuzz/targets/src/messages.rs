#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| everwatch_fuzz::messages(bytes));
