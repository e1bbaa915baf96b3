// Ranges of IPv4 addresses, as the functions cidrSubnet of Bicep and cidrsubnet of Terraform compute them.

import { EvaluationError } from "./evaluate.ts";

const ADDRESS_BITS = 32;

/** A range: its first address as a number, and the length of its prefix. */
export interface AddressRange {
  first: number;
  length: number;
}

/**
 * Parses a range such as `10.20.0.0/24`.
 *
 * @throws `EvaluationError` if the text is no range.
 */
export function parseRange(text: string): AddressRange {
  const [, address, prefix] = /^((?:\d{1,3}\.){3}\d{1,3})\/(\d{1,2})$/.exec(text) ?? [];
  const octets = (address ?? "").split(".").map(Number);
  const length = Number(prefix);
  if (address === undefined || length > ADDRESS_BITS || octets.some((octet) => octet > 255))
    throw new EvaluationError(`${text} is no address range`);
  const first = octets.reduce((sum, octet) => sum * 256 + octet, 0);
  return { first: first - (first % sizeOf(length)), length };
}

/**
 * Returns a part of a range, as text.
 *
 * @param length - Length of the part's prefix.
 * @param index - Number of the part, from 0.
 * @throws `EvaluationError` if the range has no such part.
 */
export function subnetOf(range: string, length: number, index: number): string {
  const parent = parseRange(range);
  if (length < parent.length || length > ADDRESS_BITS || index >= 2 ** (length - parent.length))
    throw new EvaluationError(`${range} has no part ${index} with a prefix of ${length}`);
  const first = parent.first + index * sizeOf(length);
  const octets = [3, 2, 1, 0].map((place) => Math.floor(first / 256 ** place) % 256);
  return `${octets.join(".")}/${length}`;
}

/** Returns whether the outer range contains the inner range. */
export const includes = (outer: AddressRange, inner: AddressRange): boolean =>
  inner.first >= outer.first && lastOf(inner) <= lastOf(outer);

/** Returns whether two ranges have an address in common. */
export const overlap = (one: AddressRange, two: AddressRange): boolean =>
  one.first <= lastOf(two) && two.first <= lastOf(one);

const sizeOf = (length: number): number => 2 ** (ADDRESS_BITS - length);
const lastOf = ({ first, length }: AddressRange): number => first + sizeOf(length) - 1;
