//! No text makes the reader of receipts panic, and what it reads has one spelling.

use belljar_ledger::{ReceiptError, RunReceipt, verify_receipt};

pub fn check(bytes: &[u8]) {
    let text = super::text(bytes);
    if let Ok(receipt) = RunReceipt::parse(text) {
        assert_eq!(receipt.to_text(), text);
    }
    match verify_receipt(text, &[]) {
        Ok(_) => panic!("nobody is trusted"),
        Err(ReceiptError::UntrustedKey { .. }) => assert!(RunReceipt::parse(text).is_ok()),
        Err(_) => {}
    }
}
