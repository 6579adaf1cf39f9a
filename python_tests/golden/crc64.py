"""The checksum at the end of a DUMP payload: CRC-64 of Jones, reflected, as in Redis."""


def rows():
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x95AC9329AC4BC9B5 if byte & 1 else 0)
        yield byte


TABLE = tuple(rows())


def crc64(data):
    crc = 0
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc


def sealed(payload):
    """The payload (body and RDB version) with its checksum."""
    return payload + crc64(payload).to_bytes(8, "little")
