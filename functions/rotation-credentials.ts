import * as z from "zod";
import type { Repeat } from "../shared/platform/http/endpoint.ts";
import { pageOf, pageRequest, pageView } from "../shared/platform/http/paging.ts";
import { created, ok } from "../shared/platform/http/reply.ts";
import { planView, RotationView, rotationView } from "../shared/rotation/api.ts";
import {
  CredentialDetailView,
  CredentialDiscovery,
  CredentialParams,
  CredentialQuery,
  CredentialView,
  checkedView,
  credentialView,
  DatabaseServerList,
  DeletedCredential,
  databaseServerView,
  discoveryView,
  EXAMPLE_ID,
  RegisterCredentialRequest,
  RegisteredCredential,
  RotateCredentialRequest,
  registeredView,
  registrationRequestOf,
  rotationRequestOf,
} from "../shared/rotation/credentials-api.ts";
import { dryRun } from "../shared/rotation/dry-run.ts";
import { rotationUnfinished, throwAsProblem } from "../shared/rotation/problems.ts";
import { DiscoverMessage, QUEUE } from "../shared/rotation/resource-keys/credentials.ts";
import { endpoint, poison, queue } from "./declare.ts";
import { confirmationsFor } from "./rotation-confirmations.ts";
import type { Services } from "./services.ts";

/*
 * Endpoints and queue handlers of credentials of Azure resources: pairs of keys, one of each in a vault secret, and registered
 * pairs of database users. The service finds keys by comparing the values of secrets with them.
 */

const tag = "Rotation";
const base = "api/automation/rotation/credentials";

const discoverCredentials = endpoint({
  name: "discoverCredentials",
  method: "POST",
  route: `${base}/discover`,
  summary: "Find vault secrets that store keys of Azure resources",
  description:
    "Lists the keys of Azure resources in the monitored subscriptions, reads all enabled vault secrets, and compares both in memory. Stores which secret stores which key, and never a value or a hash of one. Returns the completed run, or the run with status `running` after 20 seconds. If a run is already in progress, that run is returned. Resources and secrets that the service's identity may not read are counted and not compared.",
  tag,
  access: "operator",
  tier: "pro",
  // 201 for a new run, 200 for one that was already in progress.
  responds: { 200: CredentialDiscovery, 201: CredentialDiscovery },
  problems: ["conflict"],
  repeat: {
    idOf: ({ runId }) => runId,
    answer: async ({ id, services }) => discoveryView(await services.credentials.run(id)),
  },
  handle: async ({ caller, services }) => {
    const { run, isNew } = await services.credentials.discover(caller);
    return isNew ? created(discoveryView(run), `/${base}/runs/${run.runId}`) : ok(discoveryView(run));
  },
});

const getCredentialDiscovery = endpoint({
  name: "getCredentialDiscovery",
  method: "GET",
  route: `${base}/runs/{run_id}`,
  summary: "Get a credential discovery run",
  description:
    "Runs are kept for 30 days. Works without a PRO license, so that you can follow runs that started under one.",
  tag,
  access: "user",
  tier: "core",
  params: z.object({ run_id: z.string().meta({ description: "ID of the discovery run." }) }),
  responds: { 200: CredentialDiscovery },
  problems: ["notFound"],
  handle: async ({ params, services }) => ok(discoveryView(await services.credentials.run(params.run_id))),
});

const listCredentials = endpoint({
  name: "listRotationCredentials",
  method: "GET",
  route: base,
  summary: "List keys of Azure resources and logins of databases that vault secrets store",
  description:
    "Returns one credential for each pair of keys of a resource, as the last discovery found it, and for each registered database login, ordered by the name of the resource. GET /api/automation/rotation/apps lists client secrets of applications.",
  tag,
  access: "user",
  tier: "pro",
  query: CredentialQuery,
  example: { query: { kind: "storage", limit: "10" } },
  responds: { 200: pageOf(CredentialView, "RotationCredentialList") },
  handle: async ({ query, services }) => {
    const { limit: _limit, offset: _offset, cursor: _cursor, ...filter } = query;
    return ok(pageView(await services.credentials.list(filter, pageRequest(query)), credentialView));
  },
});

const listDatabaseServers = endpoint({
  name: "listDatabaseServers",
  method: "GET",
  route: "api/automation/rotation/database-servers",
  summary: "List database servers whose logins can be registered",
  description:
    "Returns the PostgreSQL flexible servers in the monitored subscriptions that the service's identity can read, by name, from Azure Resource Graph. A new server appears after some minutes.",
  tag,
  access: "admin",
  tier: "pro",
  responds: { 200: DatabaseServerList },
  problems: ["unavailable"],
  handle: async ({ services }) => {
    const servers = await services.databaseServers().catch(throwAsProblem);
    return ok({ items: servers.map(databaseServerView) });
  },
});

const registerCredential = endpoint({
  name: "registerRotationCredential",
  method: "POST",
  route: base,
  summary: "Register two alternating users of a database server",
  description:
    "Reads the vault secrets, signs in with the login that they store and as the service's identity, compares the rights of both users, and stores the names: never a password. With dryRun: true the answer lists in `missing` what prevents the registration. Otherwise anything missing returns 409. Changes nothing on the server.",
  tag,
  access: "admin",
  tier: "pro",
  body: RegisterCredentialRequest,
  // A registration names the vault secrets to which rotations write new passwords.
  guarded: ({ body }) => !body.dryRun,
  example: {
    body: {
      serverId:
        "/subscriptions/9a3b1c52-6a0e-4c7d-9b57-0d3d3a1f2e4b/resourceGroups/rg-payments/providers/Microsoft.DBforPostgreSQL/flexibleServers/psql-payments",
      database: "payments",
      users: ["payments_a", "payments_b"],
      signInAs: "credential-lifecycle",
      places: ["kv-payments.secret.database-url"],
      dryRun: true,
    },
  },
  responds: { 200: RegisteredCredential, 201: RegisteredCredential },
  problems: ["conflict", "unavailable"],
  repeat: {
    idOf: ({ credentialId }) => credentialId,
    answer: async ({ id, services }) => registeredView(await services.logins.get(id)),
  },
  handle: async ({ body, caller, services }) => {
    const request = registrationRequestOf(body);
    if (body.dryRun) {
      const { login, missing } = await services.logins.check(request, caller);
      return ok(checkedView(login, missing));
    }
    const login = await services.logins.register(request, caller);
    return created(registeredView(login), `/${base}/${login.credentialId}`);
  },
});

const deleteCredential = endpoint({
  name: "deleteRotationCredential",
  method: "DELETE",
  route: `${base}/{credential_id}`,
  summary: "Forget two registered users of a database server",
  description:
    "Changes nothing on the server and in the vaults. Returns 404 for a key of an Azure resource, which the next discovery would find again, and 409 while a rotation is in progress.",
  tag,
  access: "admin",
  tier: "pro",
  params: CredentialParams,
  example: { params: { credential_id: "db-3f786850e387550fdab836ed7e6dc881" } },
  responds: { 200: DeletedCredential },
  problems: ["notFound", "rotationUnfinished"],
  handle: async ({ params, caller, services }) => {
    const rotationId = await services.rotations.unfinishedOf(params.credential_id.toLowerCase());
    if (rotationId !== undefined) throw rotationUnfinished(rotationId);
    await services.logins.remove(params.credential_id, caller);
    return ok({ deleted: true as const });
  },
});

const getCredential = endpoint({
  name: "getRotationCredential",
  method: "GET",
  route: `${base}/{credential_id}`,
  summary: "Get a credential of an Azure resource",
  tag,
  access: "user",
  tier: "pro",
  params: CredentialParams,
  example: { params: { credential_id: EXAMPLE_ID } },
  responds: { 200: CredentialDetailView },
  problems: ["notFound"],
  handle: async ({ params, services }) => {
    const credential = await services.credentials.get(params.credential_id);
    const { issuer, credentialId, resourceId } = credential;
    const rotationId = await services.rotations.unfinishedOf(issuer === "databaseLogin" ? credentialId : resourceId);
    return ok({ ...credentialView(credential), rotationId: rotationId ?? null });
  },
});

/**
 * A repeat with the same Idempotency-Key returns the current state of the first request's rotation. The plan of a dry run has no
 * ID, so its repeat plans again.
 */
const repeat: Repeat<Services, unknown, z.input<typeof RotationView>> = {
  idOf: ({ rotationId }) => rotationId,
  answer: async ({ id, services }) => rotationView(await services.rotations.get(id)),
};

const rotateCredential = endpoint({
  name: "rotateCredential",
  method: "POST",
  route: `${base}/{credential_id}/rotate`,
  summary: "Rotate a key of an Azure resource or a login of a database",
  description:
    "Compares the vault secrets with the keys again, regenerates the key of the pair that none of them and no known consumer has, proves it, writes it to the vault secrets that store the other one, and refreshes their consumers. The key in use is never regenerated while a known place or consumer has it. For a registered database login, sets the password of the user that is not in use instead, and writes user and password to all registered secrets; the old user gets an unknown password after the overlap period. Only one rotation of a resource can run at a time (409 with the ID of that rotation). With dryRun: true the answer is always a plan, and `needs` lists the missing information. The rotation runs in the background; follow it with GET /api/automation/rotation/rotations/{rotation_id}.",
  tag,
  access: "admin",
  tier: "pro",
  params: CredentialParams,
  body: RotateCredentialRequest,
  bodyOptional: true,
  // Guarded requests need the confirmations that the settings requireStepUp and requireApproval require: here those that name
  // the vault secrets to which the new value is written.
  guarded: ({ body }) => !body.dryRun && body.targets !== undefined,
  example: {
    params: { credential_id: EXAMPLE_ID },
    body: { overlapDays: 7, dryRun: true },
  },
  responds: { 200: RotationView, 201: RotationView },
  problems: ["notFound", "conflict", "rotationUnfinished", "notRotatable", "willBreak", "serviceVault", "unavailable"],
  repeat,
  handle: async ({ params, body, actor, caller, services }) => {
    const credential = await services.credentials.get(params.credential_id);
    const request = rotationRequestOf(credential, body);
    if (body.dryRun) {
      const { rotations, clock } = services;
      const { issuer, credentialId, resourceId, kind } = credential;
      const subject =
        issuer === "databaseLogin"
          ? { loginId: credentialId, resourceId, keyKind: kind.name }
          : { issuer, resourceId, keyKind: kind.name };
      const confirmations = await confirmationsFor(body.targets, actor, services);
      const plan = await dryRun(subject, async () => request, confirmations, {
        rotations,
        now: clock.now(),
      });
      return ok(planView(plan));
    }
    const rotation = await services.rotations.begin(request, caller);
    return created(rotationView(rotation), `/api/automation/rotation/rotations/${rotation.rotationId}`);
  },
});

export const endpoints = [
  discoverCredentials,
  getCredentialDiscovery,
  listCredentials,
  listDatabaseServers,
  registerCredential,
  getCredential,
  deleteCredential,
  rotateCredential,
];

export const queues = [
  queue({
    name: "discoverCredentialsQueue",
    queue: QUEUE,
    message: DiscoverMessage,
    handle: (message, { services }) => services.credentials.handle(message),
  }),
  poison({
    name: "discoverCredentialsFailed",
    of: QUEUE,
    message: DiscoverMessage,
    handle: (message, { services, requestId }) => services.credentials.failed(message, { actor: "system", requestId }),
  }),
];
