import { type Outgoing, Unreachable } from "./outgoing.ts";

/** The `fetch` signature that libraries expect. */
export type Fetch = (
  address: string,
  options: { method: string; headers: Record<string, string>; body?: unknown; signal?: AbortSignal },
) => Promise<Response>;

/** Statuses without a body: https://fetch.spec.whatwg.org/#null-body-status */
const WITHOUT_BODY = [204, 205, 304];

/**
 * Wraps an `Outgoing` client as a `fetch` function for libraries such as OpenID Connect clients. Bodies are text or forms.
 *
 * @throws {Unreachable} also for a response over the size limit or with a status that a `Response` can't have.
 */
export const guardedFetch =
  (outgoing: Outgoing): Fetch =>
  async (address, { method, headers, body, signal }) => {
    if (method !== "GET" && method !== "POST") throw new TypeError(`The method ${method} is not sent.`);
    // A form is a `URLSearchParams`, whose text is the encoded form.
    const bodyText = body === undefined || body === null ? {} : { body: String(body) };
    const answer = await outgoing.send(address, { method, headers, ...bodyText, ...(signal && { signal }) });
    if (!answer.complete) {
      throw new Unreachable(`${new URL(address).hostname} sent a response that exceeds the size limit.`, {
        sent: true,
        permanent: true,
      });
    }
    // A `Response` can only have a status from 200 to 599: https://fetch.spec.whatwg.org/#dom-response
    if (answer.status < 200 || answer.status > 599) {
      const message = `${new URL(address).hostname} answered ${answer.status}, which is not the status of a final response.`;
      throw new Unreachable(message, { sent: true, permanent: false });
    }
    const headerEntries = Object.entries(answer.headers).flatMap(([name, values]) =>
      [values ?? []].flat().map((value): [string, string] => [name, value]),
    );
    const content = WITHOUT_BODY.includes(answer.status) ? null : new Uint8Array(answer.body);
    return new Response(content, { status: answer.status, headers: headerEntries });
  };
