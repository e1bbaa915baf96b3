/**
 * Returns the result of Bicep's function `uniqueString`: 13 characters of `a` to `z` and `2` to `7`. Azure documents that the
 * function is a hash, but not which one. Known results show that it is MurmurHash3 with two lanes of 32 bits over the UTF-8
 * bytes of the arguments, joined with hyphens. The tests compare known results.
 */
export function uniqueString(...values: readonly string[]): string {
  const bytes = Buffer.from(values.join("-"), "utf8");
  let [low, high] = [0, 0];
  /** Length of the whole blocks of eight bytes: four for each lane. */
  const blocks = bytes.length - (bytes.length % 8);
  for (let offset = 0; offset < blocks; offset += 8) {
    low = rotate(low ^ mixLow(bytes.readUInt32LE(offset)), 19) + high;
    low = (Math.imul(low, 5) + 0x561ccd1b) >>> 0;
    high = rotate(high ^ mixHigh(bytes.readUInt32LE(offset + 4)), 13) + low;
    high = (Math.imul(high, 5) + 0x0bcaa747) >>> 0;
  }
  // The last block is filled with zeros.
  const tail = Buffer.alloc(8);
  bytes.copy(tail, 0, blocks);
  low ^= mixLow(tail.readUInt32LE(0));
  high ^= mixHigh(tail.readUInt32LE(4));

  high ^= bytes.length;
  low = ((low ^ bytes.length) + high) >>> 0;
  high = (high + low) >>> 0;
  low = avalanche(low);
  high = avalanche(high);
  low = (low + high) >>> 0;
  high = (high + low) >>> 0;
  return base32((BigInt(high) << 32n) | BigInt(low));
}

/** Multipliers of MurmurHash3. */
const FIRST = 0x239b961b;
const SECOND = 0xab0e9789;
const rotate = (value: number, bits: number): number => ((value << bits) | (value >>> (32 - bits))) >>> 0;
const mixLow = (block: number): number => Math.imul(rotate(Math.imul(block, FIRST), 15), SECOND);
const mixHigh = (block: number): number => Math.imul(rotate(Math.imul(block, SECOND), 17), FIRST);

function avalanche(value: number): number {
  let mixed = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}

/** Encodes 64 bits as 13 characters of 5 bits, highest bits first. The last character has 4 bits and a zero. */
function base32(hash: bigint): string {
  const padded = hash << 1n;
  const digit = (index: number) => "abcdefghijklmnopqrstuvwxyz234567"[Number((padded >> BigInt(60 - 5 * index)) & 31n)];
  return Array.from({ length: 13 }, (_, index) => digit(index)).join("");
}
