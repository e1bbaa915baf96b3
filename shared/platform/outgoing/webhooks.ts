import { createHmac } from "node:crypto";
import { DAY_MS, SECOND_MS } from "../time.ts";
import type { OutgoingOptions } from "./outgoing.ts";

/** The allowed addresses and the signature of webhooks, with the headers of Standard Webhooks. */

/**
 * Returns the allowed webhook targets: public HTTPS addresses, and the service's own network if allowed. Reads 4 KiB of a
 * response, more than is shown to users.
 */
export const webhookTargets = (allowPrivate: boolean): OutgoingOptions => ({
  allowedNetwork: () => (allowPrivate ? "ownNetwork" : "public"),
  plainHttp: () => allowPrivate,
  remedy: "ALLOW_PRIVATE_WEBHOOK_ADDRESSES allows receivers in the service's own network.",
  timeoutMs: 15 * SECOND_MS,
  maxAnswerBytes: 4096,
});

/** Length of a signing key in bytes. The specification requires 24 to 64. */
export const SIGNING_KEY_BYTES = 32;
const KEY_PREFIX = "whsec_";
/** How long messages are also signed with the previous key, so that receivers can switch. */
const KEY_OVERLAP_MS = DAY_MS;

/** A signing key. Messages are signed with it until its end `until`, ISO 8601. The newest key has none. */
export interface WebhookKey {
  key: string;
  until?: string | undefined;
}

/** Returns a signing key as text, in the format of Standard Webhooks. */
export const signingKeyOf = (bytes: Uint8Array): string => KEY_PREFIX + Buffer.from(bytes).toString("base64");

/**
 * Returns the earlier keys that are still valid after a new one replaces the newest. If the response of an earlier rotation was
 * lost, the receiver still has the key from before that rotation.
 */
export function keysAfterRotation(keys: readonly WebhookKey[], now: Date): Required<WebhookKey>[] {
  const until = new Date(now.getTime() + KEY_OVERLAP_MS).toISOString();
  return keys
    .map(({ key, until: validUntil = until }) => ({ key, until: validUntil }))
    .filter((candidate) => candidate.until > now.toISOString());
}

/**
 * Returns the signature headers. Receivers verify the sender with them and detect duplicates: `webhook-id` is the same for every
 * attempt. https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
 */
export function signatureHeaders({ keys }: { keys: readonly WebhookKey[] }, id: string, body: string, now: Date) {
  const timestamp = String(Math.floor(now.getTime() / 1000));
  const signatures = keys
    .filter(({ until }) => until === undefined || until > now.toISOString())
    .map(({ key }) => {
      const bytes = Buffer.from(key.slice(KEY_PREFIX.length), "base64");
      return `v1,${createHmac("sha256", bytes).update(`${id}.${timestamp}.${body}`).digest("base64")}`;
    });
  return { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signatures.join(" ") };
}

/** Minimum number of characters of a part of a path that may be a secret. */
const SECRET_PART = 16;

/**
 * Returns the origin and path of a URL for a person who decides about it. Without user, query and fragment, which can contain a
 * secret. Longer parts of the path, which may be one, are replaced.
 */
export function shownAddress(url: string): string {
  const { origin, pathname } = new URL(url);
  const shown = (part: string) => (part.length < SECRET_PART ? part : "[hidden]");
  return `${origin}${pathname.split("/").map(shown).join("/")}`;
}
