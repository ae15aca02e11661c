//! Checks the parser of receipts: no text makes it panic, and each receipt has only one encoding.

use belljar_ledger::{ReceiptError, RunReceipt, verify_receipt};

pub fn check(bytes: &[u8]) {
    let text = super::text(bytes);
    if let Ok(receipt) = RunReceipt::parse(text) {
        assert_eq!(receipt.to_text(), text);
    }
    match verify_receipt(text, &[]) {
        Ok(_) => panic!("a receipt was accepted without any trusted key"),
        Err(ReceiptError::UntrustedKey { .. }) => assert!(RunReceipt::parse(text).is_ok()),
        Err(_) => {}
    }
}
