import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import * as z from "zod";
import type { Cookie } from "../platform/http/reply.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { entity } from "../platform/storage/entity.ts";
import { RowChanged, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import { SignInRefused } from "./refusals.ts";

/** A sign-in that was begun must be completed within this time. */
const LONGEST_MS = 10 * MINUTE_MS;
/** Bytes of an id, which providers see, and of the cookie's secret, which only the browser has. */
const ID_BYTES = 16;
const SECRET_BYTES = 32;

/**
 * The cookie that binds a sign-in to the browser that began it. SAML's answer comes as a form that another site posts, with
 * which browsers send no Lax cookie. https://www.ietf.org/archive/id/draft-ietf-httpbis-rfc6265bis-20.html#section-5.6.7
 */
export const BINDING_COOKIES = {
  oidc: { name: "__Host-sso", sameSite: "Lax" },
  saml: { name: "__Host-sso-saml", sameSite: "None" },
} as const;
export type ProtocolName = keyof typeof BINDING_COOKIES;

const PARTITION = "requests";
const request = z.object({
  protocol: z.enum(["oidc", "saml"]),
  /** SHA-256 of the cookie, in hex. The cookie itself, and what is derived from it, stand nowhere. */
  cookieHash: z.string(),
  /** A path of this service. */
  returnUrl: z.string(),
  /** Of the configuration it was begun under. */
  generation: z.string(),
  expiresAt: z.string(),
  /** Who completed it: a random id, so that of two at once one is told apart. */
  usedBy: z.string().optional(),
});
type RequestRecord = z.infer<typeof request>;
const Request = entity("Sso", request);

/** A sign-in request in the hands of whoever has its cookie. */
export interface SignInRequest extends Pick<RequestRecord, "returnUrl" | "generation"> {
  /** What the provider is given to hand back (state, RelayState): nothing but the row's id. */
  id: string;
  /** A value for one purpose that follows from the cookie and the id: 43 characters of base64url, as PKCE asks for. */
  derived(purpose: string): string;
}

/** Sign-ins that were begun and not yet completed, each bound to one browser and completed once, on whatever instance. */
export interface SignInRequests {
  begin(
    how: Pick<RequestRecord, "protocol" | "returnUrl" | "generation">,
  ): Promise<{ request: SignInRequest; cookie: Cookie }>;
  /**
   * The request that a callback completes; from then on nobody else does.
   *
   * @param cookie - The binding cookie's value.
   * @throws {SignInRefused} unknownRequest, otherBrowser, expired, used
   */
  complete(protocol: ProtocolName, id: string | undefined, cookie: string | undefined): Promise<SignInRequest>;
  /** Removes those that are over. */
  cleanUp(): Promise<void>;
}

export function createSignInRequests(deps: { tables: Tables; clock: Clock; randomness: Randomness }): SignInRequests {
  const { tables, clock, randomness } = deps;
  const random = (bytes: number) => Buffer.from(randomness.bytes(bytes)).toString("base64url");

  return {
    async begin({ protocol, returnUrl, generation }) {
      const [id, secret] = [random(ID_BYTES), random(SECRET_BYTES)];
      const expiresAt = new Date(clock.now().getTime() + LONGEST_MS).toISOString();
      const row = { protocol, cookieHash: hashOf(secret), returnUrl, generation, expiresAt };
      await tables.insert(Request, PARTITION, id, row);
      return { request: held(id, secret, row), cookie: bindingCookie(protocol, secret, LONGEST_MS / SECOND_MS) };
    },

    async complete(protocol, id, cookie) {
      if (id === undefined || !ID.test(id)) throw new SignInRefused("unknownRequest");
      const row = await tables.get(Request, PARTITION, id);
      if (row?.protocol !== protocol) throw new SignInRefused("unknownRequest");
      const theirs = cookie !== undefined && timingSafeEqual(Buffer.from(hashOf(cookie)), Buffer.from(row.cookieHash));
      if (!theirs) throw new SignInRefused("otherBrowser");
      if (Date.parse(row.expiresAt) <= clock.now().getTime()) throw new SignInRefused("expired");
      if (row.usedBy !== undefined) throw new SignInRefused("used");
      try {
        await tables.replace(Request, { ...row, usedBy: random(ID_BYTES) });
      } catch (error) {
        if (error instanceof RowChanged) throw new SignInRefused("used");
        throw error;
      }
      return held(id, cookie, row);
    },

    async cleanUp() {
      const now = clock.now().getTime();
      for await (const rows of tables.pages(Request, { partitionKey: PARTITION, select: ["expiresAt"] })) {
        for (const { rowKey, expiresAt } of rows) {
          if (Date.parse(expiresAt) <= now) await tables.remove(Request, PARTITION, rowKey);
        }
      }
    },
  };
}

const ID = /^[\w-]{22}$/;

const hashOf = (secret: string): string => createHash("sha256").update(secret).digest("hex");

const held = (
  id: string,
  secret: string,
  { returnUrl, generation }: Pick<RequestRecord, "returnUrl" | "generation">,
): SignInRequest => ({
  id,
  returnUrl,
  generation,
  derived: (purpose) => createHmac("sha256", secret).update(`${purpose}\0${id}`).digest("base64url"),
});

/** @param maxAge - Seconds; 0 makes the browser forget it. */
export function bindingCookie(protocol: ProtocolName, value: string, maxAge: number): Cookie {
  return { ...BINDING_COOKIES[protocol], value, path: "/", maxAge, httpOnly: true, secure: true };
}
