/** Castagnoli's polynomial, bits reversed. https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4 */
const POLYNOMIAL = 0x82f63b78;

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let remainder = byte;
  for (let bit = 0; bit < 8; bit++) remainder = remainder & 1 ? (remainder >>> 1) ^ POLYNOMIAL : remainder >>> 1;
  return remainder;
});

/** Returns the CRC32C of bytes, with which Google verifies transmitted values. Node's `crc32` uses another polynomial. */
export function crc32c(bytes: Uint8Array): number {
  let remainder = 0xffffffff;
  for (const byte of bytes) remainder = TABLE[(remainder ^ byte) & 0xff]! ^ (remainder >>> 8);
  return (remainder ^ 0xffffffff) >>> 0;
}
