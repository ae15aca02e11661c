//! No text makes the reader of receipts panic, and what it reads has one spelling.
#![no_main]

use belljar_ledger::{ReceiptError, RunReceipt, verify_receipt};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(receipt) = RunReceipt::parse(text) {
        assert_eq!(receipt.to_text(), text);
    }
    match verify_receipt(text, &[]) {
        Ok(_) => panic!("nobody is trusted"),
        Err(ReceiptError::UntrustedKey { .. }) => assert!(RunReceipt::parse(text).is_ok()),
        Err(_) => {}
    }
});
