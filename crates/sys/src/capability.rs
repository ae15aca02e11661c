//! Drops capabilities permanently. See capabilities(7).

use std::io;

use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

/// Prevents this thread from gaining capabilities by exec or by user id 0. Needs CAP_SETPCAP.
/// Capabilities that the thread already has stay until [`clear`], even if its user id changes.
pub fn forbid_regaining() -> io::Result<()> {
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            Err(rustix::io::Errno::INVAL) => break, // beyond the last capability of this kernel
            Err(error) => return Err(error.into()),
        }
    }
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    Ok(rustix::thread::set_capabilities_secure_bits(bits)?)
}

/// Drops every capability of this thread.
pub fn clear() -> io::Result<()> {
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(rustix::thread::set_capabilities(None, none)?)
}
