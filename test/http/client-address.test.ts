import { expect, test } from "vitest";
import { clientAddress } from "../../shared/platform/http/client-address.ts";

/*
 * The service identifies a client by the entry of X-Forwarded-For that the outermost trusted proxy added: with `hops` trusted
 * proxies, the entry at this position from the end.
 */
const addressOf = (forwarded: string | undefined, hops = 1) =>
  clientAddress(new Headers(forwarded === undefined ? {} : { "x-forwarded-for": forwarded }), hops);

test.each([
  ["198.51.100.7", "198.51.100.7"],
  ["198.51.100.7:4711", "198.51.100.7"],
  [" 198.51.100.7 ", "198.51.100.7"],
  ["203.0.113.9, 198.51.100.7:4711", "198.51.100.7"],
  // One customer owns a whole /64, so the last four groups don't identify a client.
  ["[2001:db8:1:2:3:4:5:6]:4711", "2001:db8:1:2::/64"],
  ["2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"],
  ["2001:db8:1:3::1", "2001:db8:1:3::/64"],
  ["2001:DB8:00a0::1", "2001:db8:a0:0::/64"],
  // An IPv4 address in IPv6 notation is the same client.
  ["::ffff:198.51.100.7", "198.51.100.7"],
  ["[::ffff:198.51.100.7]:80", "198.51.100.7"],
])('the client address in X-Forwarded-For "%s" is %s', (forwarded, address) => {
  expect(addressOf(forwarded)).toBe(address);
});

test.each([undefined, "", "unknown", "_hidden", "198.51.100.7.8", "example.com", "1:2:3", "198.51.100.7,"])(
  'the client address in X-Forwarded-For "%s" is unknown',
  (forwarded) => {
    expect(addressOf(forwarded)).toBe("unknown");
  },
);

test("with two trusted proxies, the client address is the second entry from the end", () => {
  expect(addressOf("192.0.2.1, 203.0.113.9, 198.51.100.7", 2)).toBe("203.0.113.9");
  expect(addressOf("198.51.100.7", 2)).toBe("unknown");
});
