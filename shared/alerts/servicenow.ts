import * as z from "zod";
import type { Outgoing, OutgoingAnswer, OutgoingRequest } from "../outgoing/outgoing.ts";
import type { Incident } from "./incident.ts";
import type { Urgency } from "./items.ts";
import type { RuleCredentials } from "./rule.ts";

/**
 * Incidents of ServiceNow by its Table API:
 * https://www.servicenow.com/docs/bundle/zurich-api-reference/page/integrate/inbound-rest/concept/c_TableAPI.html
 * An incident is found again by its correlation id, so a repeated request makes no second one.
 */

/** Characters of a short description, as the field is delivered. */
const MAX_SHORT = 160;
const MAX_DESCRIPTION = 4000;

/** 1 is the highest; the instance makes its priority of both. */
const IMPACTS: Record<Urgency, { urgency: string; impact: string }> = {
  expired: { urgency: "1", impact: "2" },
  critical: { urgency: "2", impact: "2" },
  warning: { urgency: "3", impact: "2" },
  notice: { urgency: "3", impact: "3" },
};

/** States of an incident as delivered: 6 is resolved, 7 closed, 8 cancelled. */
const RESOLVED = "6";
const OVER = "6,7,8";

/** What answers hold of a record, of which only the beginning is read. */
const SHORT = "sysparm_fields=sys_id";

const Found = z.object({ result: z.array(z.object({ sys_id: z.string().regex(/^[0-9a-f]{32}$/i) })) });
const Token = z.object({ access_token: z.string().min(1) });

/** An answer that ends the attempt. */
export class Unexpected extends Error {
  readonly answer: OutgoingAnswer;
  constructor(answer: OutgoingAnswer, message: string) {
    super(message);
    this.name = "Unexpected";
    this.answer = answer;
  }
}

/** One sign-in to an instance and what is done with it. */
export interface ServiceNow {
  /** Brings an incident to stand as it is told; once or more. @throws {Unexpected}; {Unreachable} */
  apply(incident: Incident): Promise<OutgoingAnswer>;
}

/** @throws {Unexpected} when the sign-in fails; {Unreachable} */
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
    if (answer.status !== expected) throw new Unexpected(answer, `ServiceNow answered ${answer.status}.`);
    return answer;
  }

  return {
    async apply(incident) {
      const query = `correlation_id=${incident.key}^stateNOT IN${OVER}^ORDERBYDESCsys_created_on`;
      const search = new URLSearchParams({ sysparm_query: query, sysparm_fields: "sys_id", sysparm_limit: "1" });
      const found = await call("GET", `${table}?${search}`, 200);
      const parsed = Found.safeParse(jsonOf(found));
      if (!parsed.success) throw new Unexpected(found, "The answer is not one of ServiceNow's Table API.");
      const id = parsed.data.result[0]?.sys_id;
      if (incident.action === "close") {
        // Somebody has closed it already, or it was never opened.
        return id === undefined ? found : await call("PATCH", `${table}/${id}?${SHORT}`, 200, resolutionOf(incident));
      }
      const body = bodyOf(incident);
      return id === undefined
        ? await call("POST", `${table}?${SHORT}`, 201, {
            ...body,
            correlation_id: incident.key,
            correlation_display: "Credential lifecycle",
          })
        : await call("PATCH", `${table}/${id}?${SHORT}`, 200, body);
    },
  };
}

const bodyOf = ({ summary, facts, links, urgency }: Incident) => ({
  short_description: summary.slice(0, MAX_SHORT).toWellFormed(),
  description: [
    ...facts.map(([label, value]) => `${label}: ${value}`),
    ...links.map(({ text, url }) => `${text}: ${url}`),
  ]
    .join("\n")
    .slice(0, MAX_DESCRIPTION)
    .toWellFormed(),
  ...IMPACTS[urgency],
});

/** An instance as delivered wants a code and notes of what is resolved. */
const resolutionOf = ({ summary }: Incident) => ({
  state: RESOLVED,
  close_code: "Solution provided",
  close_notes: summary.slice(0, MAX_DESCRIPTION).toWellFormed(),
});

/** Basic authentication, or a token of the instance's own OAuth endpoint. */
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
  // Not what was answered: it may hold a token in a form that is not known here.
  const unseen = { ...answer, body: Buffer.alloc(0) };
  if (!token?.success) throw new Unexpected(unseen, `ServiceNow's sign-in answered ${answer.status} and no token.`);
  return `Bearer ${token.data.access_token}`;
}

function jsonOf({ body }: OutgoingAnswer): unknown {
  try {
    return JSON.parse(body.toString("utf8"));
  } catch {
    return undefined;
  }
}
