//! Numbers and lists as bytes, little-endian, in the order of writing.

/// Bytes to write.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    pub(crate) fn u8(&mut self, value: u8) -> &mut Encoder {
        self.raw(&[value])
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Encoder {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Encoder {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Encoder {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Encoder {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Bytes to read. Each method returns `None` past the end.
#[derive(Debug)]
pub(crate) struct Decoder<'b> {
    bytes: &'b [u8],
}

impl<'b> Decoder<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Decoder<'b> {
        Decoder { bytes }
    }

    pub(crate) fn raw(&mut self, length: usize) -> Option<&'b [u8]> {
        let (head, tail) = self.bytes.split_at_checked(length)?;
        self.bytes = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.raw(N).and_then(|bytes| bytes.try_into().ok())
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn id(&mut self) -> Option<[u8; 16]> {
        self.array()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}
