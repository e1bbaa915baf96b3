import type { CompanyResource } from "../company/resources.ts";
import { type IncomingRequest, jsonObject, type ServiceResponse } from "../http.ts";
import type { ConsumersControl } from "./consumers.ts";

/**
 * Serves the part of the control API (../control-api.ts) for resources other than vaults. ID is a resource ID, percent-encoded
 * or not:
 *
 *     GET    /control/resources                   POST   /control/resources?subscription=ID   a `CompanyResource`
 *     PATCH  /control/resources?id=ID             {"tags": {}, "properties": {}, "denied": true}
 *     DELETE /control/resources?id=ID
 *     GET    /control/resources/settings?id=ID    PATCH  …  {"NAME": "value"}, as another client; null removes a setting
 *     PUT    /control/resources/access?id=ID      {"vault": "…", "allowed": false}
 *     PUT    /control/resources/site?id=ID        a `SiteFault`
 *     PUT    /control/resources/named-value?id=ID {"staysOld": true}
 *     GET    /control/resources/calls             number of calls per resource
 *     GET    /control/resources/values?resource=ID&vault=&secret=   values that running consumers had
 *     GET    /control/resources/gaps?resource=ID&vault=&secret=     intervals without a working value
 *     POST   /control/resources/issuers           {"vault": "…", "secret": "…"}
 *     PUT    /control/resources/issuers           {"vault": "…", "secret": "…", "value": "…", "accepted": true}
 *     GET    /control/resources/keys?id=ID        values that the keys had, and who regenerated them
 *     POST   /control/resources/keys?id=ID        {"key": "key1"}, regenerates a key as another client
 *     GET    /control/resources/graph             PUT    …  members of `GraphSettings`
 *
 * @throws {Error} if the request is invalid.
 */
export function resourcesApi(control: ConsumersControl, request: IncomingRequest): ServiceResponse {
  const { method, query, segments } = request;
  const body = jsonObject(request) ?? {};
  const id = query.get("id") ?? "";
  const filter = Object.fromEntries(
    ["resource", "vault", "secret"].flatMap((name) => (query.has(name) ? [[name, query.get(name)!]] : [])),
  );
  switch (`${method} ${segments[2] ?? ""}`) {
    case "GET ":
      return ok(control.resources());
    case "POST ":
      return ok({ id: control.put(query.get("subscription") ?? "", body as unknown as CompanyResource) });
    case "PATCH ":
      control.change(id, body);
      return ok({ changed: true });
    case "DELETE ":
      return control.remove(id)
        ? ok({ removed: true })
        : { status: 404, body: { error: "There is no such resource." } };
    case "GET settings":
      return ok(control.settings(id));
    case "PATCH settings":
      control.changeSettings(id, body as Record<string, string | null>);
      return ok(control.settings(id));
    case "PUT access":
      control.allow(id, String(body.vault), body.allowed === true);
      return ok({ changed: true });
    case "PUT site":
      control.setSiteFault(id, body);
      return ok({ planted: true });
    case "PUT named-value":
      control.setNamedValueStaysOld(id, body.staysOld === true);
      return ok({ planted: true });
    case "GET calls":
      return ok(control.calls());
    case "GET values":
      return ok(control.values(filter));
    case "GET gaps":
      return ok(control.gaps(filter));
    case "POST issuers":
      control.setIssuer(secretIn(body));
      return ok({ set: true });
    case "PUT issuers":
      control.accept(secretIn(body), String(body.value), body.accepted === true);
      return ok({ set: true });
    case "GET keys":
      return ok(control.keys(id));
    case "POST keys":
      control.regenerateKey(id, String(body.key));
      return ok(control.keys(id));
    case "PUT graph":
      control.setGraph(body);
      return ok(control.graph());
    case "GET graph":
      return ok(control.graph());
    default:
      return { status: 404, body: { error: "The control API has no such resource." } };
  }
}

const secretIn = ({ vault, secret }: Record<string, unknown>) => ({ vault: String(vault), secret: String(secret) });
const ok = (body: unknown): ServiceResponse => ({ status: 200, body });
