import * as z from "zod";
import type { Outgoing, OutgoingAnswer, OutgoingRequest } from "../platform/outgoing/outgoing.ts";
import { PRODUCT } from "../platform/product.ts";
import { subjectWithin } from "./headline.ts";
import type { Incident } from "./incident.ts";
import type { Urgency } from "./items.ts";
import type { RuleCredentials } from "./rule.ts";

/**
 * Incidents of ServiceNow by its Table API:
 * https://www.servicenow.com/docs/bundle/zurich-api-reference/page/integrate/inbound-rest/concept/c_TableAPI.html
 * Incidents are found by their correlation id, so that a repeated request creates no duplicate.
 */

/** Default maximum lengths of a short description and of a description, in characters. */
const MAX_SHORT_DESCRIPTION = 160;
const MAX_DESCRIPTION = 4000;

/** ServiceNow's values, 1 is the highest. The instance derives the priority from both. */
const IMPACTS: Record<Urgency, { urgency: string; impact: string }> = {
  expired: { urgency: "1", impact: "2" },
  critical: { urgency: "2", impact: "2" },
  warning: { urgency: "3", impact: "2" },
  notice: { urgency: "3", impact: "3" },
};

/** Default incident states: 6 is resolved, 7 closed, 8 canceled. */
const RESOLVED = "6";
const FINAL_STATES = "6,7,8";

/** Limits the fields of a response to the id, because only the first 4 KiB of a response are read. */
const ONLY_ID = "sysparm_fields=sys_id";

const SearchResponse = z.object({ result: z.array(z.object({ sys_id: z.string().regex(/^[0-9a-f]{32}$/i) })) });
const Token = z.object({ access_token: z.string().min(1) });

/** Thrown for a response that is not a success. The attempt ends. */
export class UnexpectedResponse extends Error {
  readonly answer: OutgoingAnswer;
  constructor(answer: OutgoingAnswer, message: string) {
    super(message);
    this.name = "UnexpectedResponse";
    this.answer = answer;
  }
}

/** An authenticated connection to an instance. */
export interface ServiceNow {
  /** Creates, updates or resolves an incident. Idempotent. @throws {UnexpectedResponse}; {Unreachable} */
  apply(incident: Incident): Promise<OutgoingAnswer>;
}

/** Signs in to an instance. @throws {UnexpectedResponse} if the sign-in fails; {Unreachable} */
export async function openServiceNow(
  outgoing: Outgoing,
  instance: string,
  credentials: RuleCredentials,
): Promise<ServiceNow> {
  const base = instance.replace(/\/+$/, "");
  const authorization = await authorizationOf(outgoing, base, credentials);
  const table = `${base}/api/now/table/incident`;

  async function call(method: OutgoingRequest["method"], url: string, expected: number, body?: object) {
    const headers = { authorization, accept: "application/json", "user-agent": "credential-lifecycle" };
    const answer = await outgoing.send(url, {
      method,
      headers: body ? { ...headers, "content-type": "application/json" } : headers,
      ...(body && { body: JSON.stringify(body) }),
    });
    if (answer.status !== expected) throw new UnexpectedResponse(answer, `ServiceNow returned ${answer.status}.`);
    return answer;
  }

  return {
    async apply(incident) {
      const query = `correlation_id=${incident.key}^stateNOT IN${FINAL_STATES}^ORDERBYDESCsys_created_on`;
      const search = new URLSearchParams({ sysparm_query: query, sysparm_fields: "sys_id", sysparm_limit: "1" });
      const searchResponse = await call("GET", `${table}?${search}`, 200);
      const parsed = SearchResponse.safeParse(jsonOf(searchResponse));
      if (!parsed.success)
        throw new UnexpectedResponse(
          searchResponse,
          "The response is not from ServiceNow's Table API. Check the instance URL.",
        );
      const id = parsed.data.result[0]?.sys_id;
      if (incident.action === "close") {
        // Without a match, the incident is already closed or was never opened.
        return id === undefined
          ? searchResponse
          : await call("PATCH", `${table}/${id}?${ONLY_ID}`, 200, fieldsOf(incident));
      }
      const body = fieldsOf(incident);
      return id === undefined
        ? await call("POST", `${table}?${ONLY_ID}`, 201, {
            ...body,
            correlation_id: incident.key,
            correlation_display: PRODUCT,
          })
        : await call("PATCH", `${table}/${id}?${ONLY_ID}`, 200, body);
    },
  };
}

/** Returns the fields to write: of an open incident, or of its resolution. */
export function fieldsOf(incident: Incident): Record<string, string> {
  const { action, headline, links, urgency } = incident;
  const summary = subjectWithin(headline, MAX_DESCRIPTION);
  // By default, a resolved incident needs a close code and notes.
  if (action === "close") {
    const notes = textWithin([`Resolved: ${summary}`, ...factLines(incident)]);
    return { state: RESOLVED, close_code: "Solution provided", close_notes: notes };
  }
  // The main link is directly below what is wrong.
  const [main, ...others] = links.map(({ text, url }) => `${text}: ${url}`);
  return {
    short_description: subjectWithin(headline, MAX_SHORT_DESCRIPTION),
    description: textWithin([
      `Problem: ${summary}`,
      ...(main === undefined ? [] : [main]),
      ...factLines(incident),
      ...others,
    ]),
    ...IMPACTS[urgency],
  };
}

const factLines = ({ facts }: Incident): string[] => facts.map(([label, value]) => `${label}: ${value}`);
const textWithin = (lines: readonly string[]): string => lines.join("\n").slice(0, MAX_DESCRIPTION).toWellFormed();

/** Returns the header for basic authentication, or for a token from the instance's OAuth endpoint. */
async function authorizationOf(outgoing: Outgoing, base: string, credentials: RuleCredentials): Promise<string> {
  const { username, password, clientId, clientSecret } = credentials;
  if (clientId === undefined || clientSecret === undefined) {
    return `Basic ${Buffer.from(`${username ?? ""}:${password ?? ""}`).toString("base64")}`;
  }
  const client = { client_id: clientId, client_secret: clientSecret };
  const form =
    username === undefined || password === undefined
      ? new URLSearchParams({ grant_type: "client_credentials", ...client })
      : new URLSearchParams({ grant_type: "password", username, password, ...client });
  const answer = await outgoing.send(`${base}/oauth_token.do`, {
    method: "POST",
    headers: { "content-type": "application/x-www-form-urlencoded", accept: "application/json" },
    body: form.toString(),
  });
  const token = answer.status === 200 ? Token.safeParse(jsonOf(answer)) : undefined;
  // The error does not contain the body, which could contain a token in an unknown format.
  const withoutBody = { ...answer, body: Buffer.alloc(0) };
  if (!token?.success)
    throw new UnexpectedResponse(withoutBody, `The sign-in to ServiceNow failed: ${answer.status} without a token.`);
  return `Bearer ${token.data.access_token}`;
}

function jsonOf({ body }: OutgoingAnswer): unknown {
  try {
    return JSON.parse(body.toString("utf8"));
  } catch {
    return undefined;
  }
}
