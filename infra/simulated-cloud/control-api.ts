import { resourcesApi } from "./arm/control-api.ts";
import type { CompanyApplication } from "./company/applications.ts";
import type { AssetKind } from "./company/company.ts";
import type { Control } from "./control.ts";
import type { Devops } from "./devops/devops.ts";
import { EXPIRY_EVENTS } from "./event-grid.ts";
import type { DirectoryControl } from "./graph/directory-control.ts";
import type { TenantsControl } from "./graph/tenants-control.ts";
import { type IncomingRequest, jsonObject, type ServiceResponse } from "./http.ts";
import { isOidcMode } from "./idp/oidc-modes.ts";
import { isSamlMode } from "./idp/saml-modes.ts";
import type { LogEvent, Workspace, Workspaces } from "./logs/workspaces.ts";
import type { StoredMail } from "./mail.ts";
import { mailContent, mailList } from "./mail-view.ts";

type Body = Record<string, unknown>;

/**
 * The control API: offers the operations of control.ts over HTTP, for tests that run the cloud as another process, and for
 * people who try it out. It is on the loopback port that also serves the managed identity endpoint. A line below can list
 * several routes, and the text after a route says what its request body or its response contains.
 *
 *     GET    /control/counts                      DELETE /control/counts
 *     GET    /control/requests?operation=&host=&vault=&resource=&limit=
 *     GET    /control/busiest-ten-seconds         requests of each vault and region, see key-vault/traffic.ts
 *     GET    /control/foreign-requests
 *     GET    /control/faults                      POST   /control/faults     DELETE /control/faults[/ID]
 *     GET    /control/subscriptions               POST   /control/subscriptions   DELETE /control/subscriptions/ID
 *     GET    /control/governance?subscription=ID  PUT    …  a `Governance` (arm/governance.ts)
 *     POST   /control/subscriptions/ID/vaults     a `CompanyVault`
 *     GET    /control/vaults                      PATCH  /control/vaults/VAULT   DELETE /control/vaults/VAULT
 *     GET    /control/vaults/VAULT/KIND           POST   /control/vaults/VAULT/KIND   (KIND: secrets, keys, certificates)
 *     PATCH  /control/vaults/VAULT/KIND/NAME      DELETE /control/vaults/VAULT/KIND/NAME
 *     POST   /control/vaults/VAULT/KIND/NAME      {"event": "NearExpiry"} or "Expired": sends the event
 *     GET    /control/events                      PUT    /control/events     an `EventDelivery`   DELETE /control/events
 *     GET    /control/mails                       DELETE /control/mails
 *     GET    /control/mails/view[/NUMBER]         a page with the mails, for people
 *     GET    /control/sink/NAME                   DELETE /control/sink/NAME
 *     GET    /control/pagerduty                   events and alerts
 *     GET    /control/servicenow                  incidents
 *     PUT    /control/app-configuration/KEY       {"value": "…"}, or null to remove it
 *     GET    /control/providers                   the service's configuration for each sync provider
 *     PUT    /control/providers/hashicorp/PATH    {"value": "…"}: changes a copy, as a person in that cloud would
 *     GET    /control/logs                        the Log Analytics workspaces
 *     PATCH  /control/logs/NAME                   members of `Workspace`, such as {"delayMilliseconds": 3600000}
 *     POST   /control/logs/NAME/events            a `LogEvent`
 *     GET    /control/people                      PATCH  /control/people/ID
 *     GET    /control/oidc                        PUT    /control/oidc       {"mode": "…"}, see idp/oidc-modes.ts
 *     POST   /control/oidc/roll-keys
 *     GET    /control/saml                        PUT    /control/saml       {"mode": "…"}, see idp/saml-modes.ts
 *     POST   /control/saml/roll-keys
 *     PUT    /control/saml/service-providers      {"metadata": "<EntityDescriptor …"}: registers or replaces the
 *                                                 service provider
 *     POST   /control/entra/roll-keys
 *     PUT    /control/entra/api                   {"version": 2, "roles": ["Lifecycle.User"]}: token version and app roles
 *     POST   /control/entra/api-tokens            an `ApiTokenRequest`; returns the token
 *     GET    /control/clock                       POST   /control/clock      {"moveMilliseconds": 1000}
 *     GET    /control/graph                       PUT    /control/graph      members of `DirectorySettings`
 *     POST   /control/graph/forget-delta-links
 *     GET    /control/applications                POST   /control/applications   a `CompanyApplication`
 *     PATCH  /control/applications/ID             DELETE /control/applications/ID
 *     GET    /control/applications/ID/secrets     POST   /control/applications/ID/secrets   {"name": "…", "expiresInDays": 1}
 *     PATCH  /control/applications/ID/secrets/KEY {"expiresInDays": -1}   DELETE /control/applications/ID/secrets/KEY
 *     POST   /control/applications/ID/signs-in    {"value": "…"}
 *     GET    /control/tenants                     the company's other tenants, with the service's registration
 *     PATCH  /control/tenants/ID                  {"type": "…", "domain": "…", "keySets": [], "identityProviders": []}
 *     GET    /control/tenants/ID/graph            PUT    /control/tenants/ID/graph   members of `DirectorySettings`
 *     …      /control/tenants/ID/applications/…   as for the service's own tenant
 *     POST   /control/targets                     {"appId": "…", "vault": "…", "secret": "…"}
 *     GET    /control/targets/gaps                intervals in which a target had no working secret (graph/watched-secrets.ts)
 *
 *     GET    /control/devops                      PUT    /control/devops     {"tokenMode": "page203", "slowed": {"seconds": 1,
 *                                                        "times": 1}, "members": []}
 *     PATCH  /control/devops/groups/NAME          {"variable": "…", "value": "…"}, as another client; null removes it
 *
 *     …      /control/resources/…                 resources other than vaults: see arm/control-api.ts
 *
 * Request bodies are types of `company/company.ts`, `event-grid.ts`, `faults.ts`, `idp/people.ts`, `api-tokens.ts` and
 * `vaults/vault-store.ts`.
 *
 * @throws {Error} if the request is invalid. The server returns the message with status 400.
 */
export function controlApi(control: Control, request: IncomingRequest): ServiceResponse | Promise<ServiceResponse> {
  const [, area = "", ...rest] = request.segments;
  const { method, query } = request;
  const body = jsonObject(request) ?? {};
  switch (area) {
    case "counts":
      if (method === "DELETE") control.resetCounts();
      return ok(control.counts());
    case "requests": {
      const filter = Object.fromEntries(
        ["operation", "host", "vault", "resource"].flatMap((name) => pair(name, query.get(name))),
      );
      return ok(control.requests({ ...filter, ...(query.has("limit") && { limit: Number(query.get("limit")) }) }));
    }
    case "busiest-ten-seconds":
      return ok(control.busiestTenSeconds());
    case "foreign-requests":
      return ok(control.foreignRequests());
    case "faults":
      return faults(control, method, rest[0], body);
    case "governance": {
      const subscription = query.get("subscription") ?? "";
      if (method === "PUT") control.governance.set(subscription, body);
      return ok(control.governance.rulesOf(subscription));
    }
    case "subscriptions":
      return subscriptions(control, method, rest, body);
    case "vaults":
      return vaults(control, method, rest, body);
    case "events":
      return events(control, method, body);
    case "mails":
      if (method === "DELETE") control.clearMails();
      return rest[0] === "view" ? mailView(control.mails(), rest[1], rest[2]) : ok(control.mails());
    case "sink":
      if (method === "DELETE") control.clearSink(rest[0] ?? "");
      return ok(control.sinkRequests(rest[0] ?? ""));
    case "pagerduty":
      return ok({ events: control.pagerDuty.events, alerts: control.pagerDuty.alerts() });
    case "servicenow":
      return ok(control.serviceNow.incidents);
    case "app-configuration":
      control.setConfiguration(rest[0] ?? "", typeof body.value === "string" ? body.value : undefined);
      return ok({ set: true });
    case "providers":
      if (method !== "PUT") return ok(control.providers.configurations());
      return rest[0] === "hashicorp" ? changeCopy(control, rest.slice(1).join("/"), body) : notFound();
    case "logs":
      return logs(control.logs, method, rest, body);
    case "people":
      if (method === "PATCH" && !control.changePerson(rest[0] ?? "", body)) return notFound();
      return ok(control.people());
    case "oidc":
      return oidc(control, method, rest[0], body);
    case "saml":
      return saml(control, method, rest[0], body);
    case "entra":
      return entra(control, rest[0], body);
    case "clock":
      if (method === "POST") control.moveClock(Number(body.moveMilliseconds));
      return ok({ now: control.now() });
    case "graph":
      if (method === "PUT") control.directory.set(body);
      if (rest[0] === "forget-delta-links") control.directory.forgetDeltaLinks();
      return ok(control.directory.settings());
    case "applications":
      return applications(control.directory, method, rest, body);
    case "resources":
      return resourcesApi(control.consumers, request);
    case "devops":
      return devops(control.devops, method, rest, body);
    case "tenants":
      return tenants(control.tenants, method, rest, body);
    case "targets":
      if (method === "POST")
        control.directory.watchTarget(body as unknown as Parameters<DirectoryControl["watchTarget"]>[0]);
      return ok(control.directory.gaps());
    default:
      return notFound();
  }
}

/**
 * Returns a page with the list of mails and the selected mail, or only the content of the selected mail.
 * @param number - Position of the mail, from 1. Undefined: the newest.
 * @param part - `content`: only the content of the mail. Undefined: the page.
 */
function mailView(mails: StoredMail[], number: string | undefined, part: string | undefined): ServiceResponse {
  if (part === undefined) return mailList(mails, number === undefined ? undefined : Number(number));
  const mail = mails[Number(number) - 1];
  return part === "content" && mail !== undefined ? mailContent(mail) : notFound();
}

function devops(devops: Devops, method: string, [part, name]: string[], body: Body): ServiceResponse {
  if (method === "PUT") devops.set(body);
  if (method === "PATCH" && part === "groups") {
    const { variable, value } = body as { variable: string; value: string | null };
    devops.organization.changeGroup(name ?? "", ({ variables }) => {
      if (value === null) delete variables[variable];
      else variables[variable] = { ...variables[variable], value };
    });
  }
  const { organization, tokenMode = null, slowed, members } = devops;
  const groups = [...organization.groups.values()].map((one) => one.name);
  const connections = [...organization.connections.values()].map((one) => one.name);
  const projects = organization.projects.map((one) => one.name);
  return ok({
    organization: organization.name,
    projects,
    groups,
    connections,
    tokenMode,
    slowed,
    members: [...members],
  });
}

function logs(workspaces: Workspaces, method: string, [name, part]: string[], body: Body): ServiceResponse {
  if (name !== undefined && method === "POST" && part === "events")
    workspaces.addEvent(name, body as unknown as LogEvent);
  if (name !== undefined && method === "PATCH") {
    const { delayMilliseconds, volume } = body as Partial<Workspace>;
    const workspace = workspaces.getOrThrow(name);
    if (delayMilliseconds !== undefined) workspace.delayMilliseconds = delayMilliseconds;
    if (volume !== undefined) workspace.volume = volume ?? undefined;
  }
  return ok(
    workspaces.all.map(({ id, name, tables, delayMilliseconds, events }) => {
      return { id, name, tables: [...tables], delayMilliseconds, events: events.length };
    }),
  );
}

function oidc(control: Control, method: string, part: string | undefined, { mode }: Body): ServiceResponse {
  if (part === "roll-keys") {
    control.rollOidcKeys();
    return ok({ rolled: true });
  }
  if (method === "PUT") {
    if (typeof mode !== "string" || !isOidcMode(mode)) throw new Error(`Unknown mode ${mode}`);
    control.setOidcMode(mode);
  }
  return ok({ mode: control.oidcMode() });
}

async function saml(
  control: Control,
  method: string,
  part: string | undefined,
  { mode, metadata }: Body,
): Promise<ServiceResponse> {
  if (part === "roll-keys") {
    control.rollSamlKeys();
    return ok({ rolled: true });
  }
  if (part === "service-providers")
    return ok({ registered: await control.registerSamlServiceProvider(String(metadata)) });
  if (method === "PUT") {
    if (typeof mode !== "string" || !isSamlMode(mode)) throw new Error(`Unknown mode ${mode}`);
    control.setSamlMode(mode);
  }
  return ok({ mode: control.samlMode() });
}

function entra(control: Control, part: string | undefined, body: Body): ServiceResponse | Promise<ServiceResponse> {
  switch (part) {
    case "roll-keys":
      control.rollEntraKeys();
      return ok({ rolled: true });
    case "api":
      control.registerApi(body.version === 1 ? 1 : 2, (body.roles ?? []) as string[]);
      return ok({ registered: true });
    case "api-tokens":
      return control.apiToken(body).then((token) => ok({ token }));
    default:
      return notFound();
  }
}

function applications(directory: DirectoryControl, method: string, path: string[], body: Body): ServiceResponse {
  const [id, part, keyId] = path;
  if (id === undefined) {
    if (method === "POST") return ok({ appId: directory.putApplication(body as unknown as CompanyApplication) });
    return ok(directory.applications());
  }
  if (part === undefined) {
    if (method === "DELETE") return directory.removeApplication(id) ? ok({ removed: true }) : notFound();
    return method === "PATCH" && directory.changeApplication(id, body) ? ok({ changed: true }) : notFound();
  }
  if (part === "signs-in") return ok({ signsIn: directory.signsIn(id, String(body.value)) });
  if (part !== "secrets") return notFound();
  if (keyId !== undefined) {
    if (method === "DELETE") return directory.removeSecret(id, keyId) ? ok({ removed: true }) : notFound();
    const changed = method === "PATCH" && directory.expireSecret(id, keyId, Number(body.expiresInDays));
    return changed ? ok({ changed: true }) : notFound();
  }
  if (method === "POST") {
    const { keyId: newKeyId } = directory.addSecret(
      id,
      body as unknown as Parameters<DirectoryControl["addSecret"]>[1],
    );
    return ok({ keyId: newKeyId });
  }
  return ok(directory.secrets(id));
}

function tenants(control: TenantsControl, method: string, [id, part, ...rest]: string[], body: Body): ServiceResponse {
  if (id === undefined) return ok(control.list());
  if (part === undefined) {
    if (method === "PATCH") control.change(id, body);
    return ok(control.list().filter((one) => one.id === id || one.domain === id));
  }
  const directory = control.directory(id);
  if (part === "applications") return applications(directory, method, rest, body);
  if (part !== "graph") return notFound();
  if (method === "PUT") directory.set(body);
  return ok(directory.settings());
}

function faults(control: Control, method: string, id: string | undefined, body: Body): ServiceResponse {
  if (method === "POST") return ok({ id: control.addFault(body as unknown as Parameters<Control["addFault"]>[0]) });
  if (method === "DELETE" && id !== undefined) return control.removeFault(id) ? ok({ removed: true }) : notFound();
  if (method === "DELETE") control.clearFaults();
  return ok(control.faults());
}

/** Changes a copy as a person in that cloud would, so that the service finds drift. */
function changeCopy({ providers }: Control, name: string, { value }: Body): ServiceResponse {
  providers.hashicorp.write(name, { value });
  return ok(providers.hashicorp.data(name));
}

function subscriptions(control: Control, method: string, [id, vaultsPart]: string[], body: Body): ServiceResponse {
  if (method === "POST" && id !== undefined && vaultsPart === "vaults") {
    control.putVault(id, body as unknown as Parameters<Control["putVault"]>[1]);
    return ok({ added: true });
  }
  if (method === "POST") {
    return ok({ id: control.putSubscription(body as unknown as Parameters<Control["putSubscription"]>[0]) });
  }
  if (method === "DELETE") return control.removeSubscription(id ?? "") ? ok({ removed: true }) : notFound();
  return ok(control.subscriptions());
}

function vaults(control: Control, method: string, [vault, kind, name]: string[], body: Body): ServiceResponse {
  if (vault === undefined) return ok(control.vaults());
  if (kind === undefined) {
    if (method === "DELETE") return control.removeVault(vault) ? ok({ removed: true }) : notFound();
    return method === "PATCH" && control.changeVault(vault, body) ? ok({ changed: true }) : notFound();
  }
  if (!isKind(kind)) return notFound();
  if (name !== undefined) {
    if (method === "POST") {
      const event = EXPIRY_EVENTS.find((one) => one === body.event);
      if (event === undefined) throw new Error(`Unknown event ${body.event}`);
      control.sendExpiry(vault, kind, name, event);
      return ok({ sent: true });
    }
    if (method === "DELETE") return control.remove(vault, kind, name) ? ok({ removed: true }) : notFound();
    return method === "PATCH" && control.change(vault, kind, name, body) ? ok({ changed: true }) : notFound();
  }
  if (method === "POST") {
    const declaration = body as { name: string };
    if (kind === "secrets") control.putSecret(vault, declaration);
    else if (kind === "keys") control.putKey(vault, declaration);
    else control.putCertificate(vault, declaration);
  }
  return ok(control.items(vault, kind));
}

async function events(control: Control, method: string, body: Body): Promise<ServiceResponse> {
  if (method === "PUT") await control.deliverEvents(body as unknown as Parameters<Control["deliverEvents"]>[0]);
  if (method === "DELETE") await control.deliverEvents(undefined);
  return ok(await control.eventCounts());
}

function isKind(text: string): text is AssetKind {
  return text === "secrets" || text === "keys" || text === "certificates";
}

/** Returns the pair as a list, or an empty list if there is no value. */
function pair(name: string, value: string | null): [string, string][] {
  return value === null ? [] : [[name, value]];
}

const ok = (body: unknown): ServiceResponse => ({ status: 200, body });
const notFound = (): ServiceResponse => ({ status: 404, body: { error: "The control API has no such resource." } });
