import { randomBytes } from "node:crypto";
import {
  type ErrorResponses,
  type IncomingRequest,
  jsonObject,
  type Operation,
  retryAfter,
  type ServiceResponse,
} from "../http.ts";

/** The only user and the only OAuth client of the instance. */
export const SERVICENOW_CREDENTIALS = {
  username: "svc-lifecycle",
  password: "stand-in-password",
  clientId: "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
  clientSecret: "stand-in-client-secret",
} as const;

/** Fields of an incident in a new instance, with their maximum length. */
const FIELDS: Record<string, number> = {
  short_description: 160,
  description: 4000,
  urgency: 1,
  impact: 1,
  state: 1,
  correlation_id: 100,
  correlation_display: 100,
  close_code: 40,
  close_notes: 4000,
  work_notes: 4000,
  category: 40,
  assignment_group: 32,
  caller_id: 32,
};

/** States of resolved and closed incidents. */
const ENDED_STATES = ["6", "7"];

export type ServiceNowIncident = Record<string, string> & { sys_id: string; number: string; state: string };

/**
 * Simulates the Table API of a ServiceNow instance for incidents, under `/servicenow` on the control port
 * (control.ts), which no client of Azure uses.
 * https://www.servicenow.com/docs/bundle/zurich-api-reference/page/integrate/inbound-rest/concept/c_TableAPI.html. A real
 * instance ignores unknown fields. Here they are rejected, so that a client's mistake is detected.
 */
export class ServiceNow {
  readonly incidents: ServiceNowIncident[] = [];
  readonly #tokens = new Set<string>();

  /** Deletes all incidents. */
  clear(): void {
    this.incidents.length = 0;
  }

  /** Route of `/servicenow` on the control port. */
  operation(request: IncomingRequest): Operation | undefined {
    const [first, ...path] = request.segments;
    if (first !== "servicenow") return undefined;
    const { method } = request;
    const operation = (name: string, answer: () => ServiceResponse): Operation => ({ name, errorResponses, answer });
    if (method === "POST" && path.join("/") === "oauth_token.do") {
      return operation("servicenow.token", () => this.#token(request));
    }
    if (path.slice(0, 4).join("/") !== "api/now/table/incident") return undefined;
    const id = path[4];
    const ifAuthenticated = (answer: () => ServiceResponse) => () =>
      this.#isAuthenticated(request) ? answer() : NOT_AUTHENTICATED;
    if (method === "GET" && id === undefined) {
      return operation(
        "servicenow.findIncidents",
        ifAuthenticated(() => this.#find(request)),
      );
    }
    if (method === "POST" && id === undefined) {
      return operation(
        "servicenow.createIncident",
        ifAuthenticated(() => this.#create(request)),
      );
    }
    if (method === "PATCH" && id !== undefined) {
      return operation(
        "servicenow.changeIncident",
        ifAuthenticated(() => this.#change(request, id)),
      );
    }
    return undefined;
  }

  #token({ headers, body }: IncomingRequest): ServiceResponse {
    const invalid = (error: string): ServiceResponse => ({
      status: 401,
      body: { error, error_description: "access_denied" },
    });
    if (!headers["content-type"]?.startsWith("application/x-www-form-urlencoded")) return invalid("invalid_request");
    const form = new URLSearchParams(body.toString("utf8"));
    const { username, password, clientId, clientSecret } = SERVICENOW_CREDENTIALS;
    if (form.get("client_id") !== clientId || form.get("client_secret") !== clientSecret)
      return invalid("invalid_client");
    const grant = form.get("grant_type");
    const isUser = form.get("username") === username && form.get("password") === password;
    if (grant !== "client_credentials" && !(grant === "password" && isUser)) return invalid("server_error");
    const token = randomBytes(43).toString("base64url");
    this.#tokens.add(token);
    return { status: 200, body: { access_token: token, scope: "useraccount", token_type: "Bearer", expires_in: 1799 } };
  }

  #isAuthenticated({ headers }: IncomingRequest): boolean {
    const { username, password } = SERVICENOW_CREDENTIALS;
    const authorization = headers.authorization ?? "";
    const basic = `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
    return authorization === basic || this.#tokens.has(authorization.replace(/^Bearer /, ""));
  }

  #find({ query }: IncomingRequest): ServiceResponse {
    // An encoded query: conditions joined by "^", such as `correlation_id=a^stateNOT IN6,7`. The newest incident is first.
    const conditions = (query.get("sysparm_query") ?? "").split("^").filter((part) => !part.startsWith("ORDERBY"));
    let matching = [...this.incidents].reverse();
    for (const condition of conditions) {
      const equalMatch = /^([a-z_]+)=(.*)$/.exec(condition);
      const notInMatch = /^([a-z_]+)NOT IN(.*)$/.exec(condition);
      const field = (equalMatch ?? notInMatch)?.[1];
      if (field === undefined || FIELDS[field] === undefined) return failure(400, `Invalid query ${condition}`);
      if (equalMatch) matching = matching.filter((one) => one[field] === equalMatch[2]);
      if (notInMatch) matching = matching.filter((one) => !notInMatch[2]!.split(",").includes(one[field] ?? ""));
    }
    const limit = Number(query.get("sysparm_limit") ?? 10_000);
    return { status: 200, body: { result: matching.slice(0, limit).map((one) => selectFields(one, query)) } };
  }

  #create(request: IncomingRequest): ServiceResponse {
    const body = fieldsIn(request);
    if (typeof body === "string") return failure(400, body);
    if (!body.short_description) return failure(403, "Data Policy Exception: short_description is mandatory");
    const number = `INC${String(10_001 + this.incidents.length).padStart(7, "0")}`;
    const incident = { state: "1", ...body, sys_id: randomBytes(16).toString("hex"), number };
    this.incidents.push(incident);
    return { status: 201, body: { result: selectFields(incident, request.query) } };
  }

  #change(request: IncomingRequest, id: string): ServiceResponse {
    const incident = this.incidents.find(({ sys_id }) => sys_id === id);
    if (incident === undefined) return failure(404, "No Record found");
    const body = fieldsIn(request);
    if (typeof body === "string") return failure(400, body);
    const changedIncident = { ...incident, ...body };
    if (ENDED_STATES.includes(changedIncident.state) && !(changedIncident.close_code && changedIncident.close_notes)) {
      return failure(
        403,
        "Data Policy Exception: The following fields are mandatory: Resolution code, Resolution notes",
      );
    }
    Object.assign(incident, body);
    return { status: 200, body: { result: selectFields(incident, request.query) } };
  }
}

/** Returns the fields in a request body, or the error message. */
function fieldsIn(request: IncomingRequest): Record<string, string> | string {
  const body = request.headers["content-type"]?.startsWith("application/json") ? jsonObject(request) : undefined;
  if (body === undefined) return "The payload is not valid JSON";
  for (const [name, value] of Object.entries(body)) {
    const maxLength = FIELDS[name];
    if (maxLength === undefined) return `Unknown field ${name}`;
    if (typeof value !== "string" || value.length > maxLength) return `Invalid value of ${name}`;
  }
  return body as Record<string, string>;
}

/** Returns the fields that `sysparm_fields` names, or all fields. */
function selectFields(incident: ServiceNowIncident, query: URLSearchParams): Record<string, string> {
  const fields = query.get("sysparm_fields")?.split(",");
  return fields ? Object.fromEntries(fields.map((name) => [name, incident[name] ?? ""])) : incident;
}

const failure = (status: number, message: string): ServiceResponse => ({
  status,
  body: { error: { message, detail: null }, status: "failure" },
});

const NOT_AUTHENTICATED = failure(401, "User Not Authenticated");

const errorResponses: ErrorResponses = {
  throttled: (seconds) => ({ ...failure(429, "Rate limit exceeded"), headers: retryAfter(seconds) }),
  denied: () => failure(403, "Insufficient rights to create new records"),
  firewalled: () => failure(403, "Access restricted"),
  failed: (status) => ({ status }),
};
