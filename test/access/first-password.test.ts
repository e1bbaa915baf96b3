import { execFile } from "node:child_process";
import { createHash, randomBytes, randomUUID } from "node:crypto";
import path from "node:path";
import { promisify } from "node:util";
import { type ArmCall, armClient } from "simulated-cloud/test/arm-client.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { movedClock } from "../support/moved-clock.ts";
import { ADMIN, Service } from "../support/service.ts";

/*
 * The deployer exchanges the sign-in to Azure for the first administrator's password. The proof is a role assignment on the
 * service's key vault that the deployer created, with a hash in its description. In the simulated cloud, the application `app`
 * is the deployer, and the managed identity is another person who may assign roles too.
 */

const SUBSCRIPTION = "11111111-2222-4333-8444-555555555555";
const VAULT_ID = `/subscriptions/${SUBSCRIPTION}/resourceGroups/rg-own/providers/Microsoft.KeyVault/vaults/kv-own`;
const OTHER_VAULT_ID = VAULT_ID.replace("kv-own", "kv-shop");
const PASSWORD = "meadow-lantern-gravel-91";
const COMMAND = path.resolve(import.meta.dirname, "../../infra/azure/scripts/first-password.ts");

/** Starts a service whose deployer is the application of the simulated cloud, unless `named` is false. */
async function startService(options: { named?: boolean; storageEnv?: Record<string, string> } = {}): Promise<Service> {
  const service = await Service.start({
    company: {
      subscriptions: [{ name: "Platform", id: SUBSCRIPTION, vaults: [{ name: "kv-own" }, { name: "kv-shop" }] }],
    },
    hosts: 0,
    ...(options.storageEnv && { storageEnv: options.storageEnv }),
  });
  const settings = { DEPLOYER_OBJECT_ID: service.cloud.app.objectId, SERVICE_KEY_VAULT_ID: VAULT_ID };
  // The addresses of the requests are those of their X-Forwarded-For.
  await service.addHost({ TRUSTED_PROXY_HOPS: "2", ...((options.named ?? true) && settings) });
  return service;
}

/** Calls Azure Resource Manager as the deployer. */
async function deployerOf({ cloud }: Service): Promise<ArmCall> {
  const { clientId, clientSecret, tenantId } = cloud.app;
  const manager = cloud.environment.AZURE_RESOURCE_MANAGER_ENDPOINT!;
  const answer = await fetch(`${cloud.environment.AZURE_AUTHORITY_HOST}/${tenantId}/oauth2/v2.0/token`, {
    method: "POST",
    body: new URLSearchParams({
      client_id: clientId,
      client_secret: clientSecret,
      grant_type: "client_credentials",
      scope: `${manager}/.default`,
    }),
  });
  const { access_token: token } = (await answer.json()) as { access_token: string };
  return async (method, resource, version, body) => {
    const { status, headers } = await fetch(`${manager}${resource}?api-version=${version}`, {
      method,
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    return { status, headers, body: undefined };
  };
}

interface Proof {
  roleAssignment: string;
  verifier: string;
}

/** The role Key Vault Reader. */
const ROLE_ID = `/subscriptions/${SUBSCRIPTION}/providers/Microsoft.Authorization/roleDefinitions/21090545-7ca7-4776-b22c-e363652d74d2`;

/** Writes a role assignment with the hash of a new verifier. @param options.existing - Name of an assignment to change instead. */
async function writeProof(azure: ArmCall, options: { vaultId?: string; existing?: string } = {}): Promise<Proof> {
  const verifier = randomBytes(32).toString("base64url");
  const roleAssignment = options.existing ?? randomUUID();
  const address = `${options.vaultId ?? VAULT_ID}/providers/Microsoft.Authorization/roleAssignments/${roleAssignment}`;
  const properties = {
    roleDefinitionId: ROLE_ID,
    principalId: randomUUID(),
    principalType: "User",
    description: `first-password:${createHash("sha256").update(verifier).digest("base64url")}`,
  };
  expect((await azure("PUT", address, "2022-04-01", { properties })).status).toBe(201);
  return { roleAssignment, verifier };
}

let requests = 0;
/** Sends the exchange. Each request has an address of its own, because sign-ins are limited for each address. */
const exchange = (service: Service, proof: Proof, password = PASSWORD) =>
  service.call("POST", "/auth/bootstrap/azure", {
    body: { ...proof, password },
    headers: { "X-Forwarded-For": `192.0.2.${++requests}` },
  });
const signIn = (service: Service, password: string) =>
  service.call("POST", "/auth/login", {
    body: { username: ADMIN.username, password },
    headers: { "X-Forwarded-For": `198.51.100.${++requests}` },
  });

test.each(["http://service.example.com", "http://localhost@service.example.com", "http://localhost.example.com", ""])(
  "the command sends nothing to the address %j",
  async (address) => {
    const environment = { PATH: process.env.PATH, SERVICE_URL: address, SERVICE_KEY_VAULT_ID: VAULT_ID };
    const run = promisify(execFile)(process.execPath, [COMMAND], { env: environment });
    run.child.stdin?.end(PASSWORD);
    await expect(run).rejects.toMatchObject({
      code: 1,
      stderr: expect.stringContaining("SERVICE_URL must be the https address"),
    });
  },
);

describe("a service that nobody has used", () => {
  let service: Service;
  let deployer: ArmCall;
  let other: ArmCall;
  beforeAll(async () => {
    service = await startService();
    deployer = await deployerOf(service);
    other = await armClient(service.cloud);
  });
  afterAll(() => service?.stop());
  beforeEach(() => service.cloud.control.clearFaults());

  test("rejects an assignment that another identity created or changed, or that is on another vault", async () => {
    const foreign = await writeProof(other);
    const changed = await writeProof(other, { existing: (await writeProof(deployer)).roleAssignment });
    for (const proof of [foreign, changed]) {
      const { status, body } = await exchange(service, proof);
      expect([status, body.detail]).toEqual([403, expect.stringContaining("another identity than the deployer")]);
    }
    // The service reads assignments on its own vault only.
    const elsewhere = await exchange(service, await writeProof(deployer, { vaultId: OTHER_VAULT_ID }));
    expect([elsewhere.status, elsewhere.body.detail]).toEqual([503, expect.stringContaining("does not show")]);
    expect(elsewhere.headers.get("retry-after")).toBe("5");
  });

  test("rejects a verifier that the assignment does not commit to", async () => {
    const { roleAssignment } = await writeProof(deployer);
    const { verifier } = await writeProof(deployer);
    const { status, body } = await exchange(service, { roleAssignment, verifier });
    expect([status, body.detail]).toEqual([403, expect.stringContaining("another verifier")]);
  });

  test("rejects a common password, and an assignment that Azure does not let it read", async () => {
    const proof = await writeProof(deployer);
    expect((await exchange(service, proof, "password1234")).body.code).toBe("invalidRequest");
    service.cloud.control.addFault({ match: { operation: "arm.readRoleAssignment" }, action: { kind: "deny" } });
    const denied = await exchange(service, proof);
    // The endpoint is open to anyone, so its answer must not contain the resource ID of the vault.
    expect([denied.status, JSON.stringify(denied.body)]).toEqual([503, expect.not.stringContaining("kv-own")]);
  });

  test("calls Azure once for an anonymous request, even while Azure throttles or fails", async () => {
    const { control } = service.cloud;
    for (const action of [{ kind: "throttle" }, { kind: "fail", status: 500 }] as const) {
      control.resetCounts();
      control.addFault({ match: { operation: "arm.readRoleAssignment" }, action });
      const { status } = await exchange(service, { roleAssignment: randomUUID(), verifier: "A".repeat(43) });
      expect([status, control.counts()["arm.readRoleAssignment"]]).toEqual([503, 1]);
      control.clearFaults();
    }
  });

  test("accepts the deployer's command once, and then the new password only", { timeout: 150_000 }, async () => {
    const { cloud } = service;
    const environment = {
      PATH: process.env.PATH,
      ...cloud.environment,
      AZURE_CLIENT_ID: cloud.app.clientId,
      AZURE_CLIENT_SECRET: cloud.app.clientSecret,
      SERVICE_URL: service.url,
      SERVICE_KEY_VAULT_ID: VAULT_ID,
    };
    const run = promisify(execFile)(process.execPath, [COMMAND], { env: environment });
    run.child.stdin?.end(`${PASSWORD}\n`);
    const { stdout, stderr } = await run;
    expect([stdout, stderr]).toEqual([expect.stringContaining(`The password of ${ADMIN.username} is set`), ""]);
    expect(cloud.control.counts()).toMatchObject({
      "arm.writeRoleAssignment": expect.any(Number),
      "arm.deleteRoleAssignment": 1,
    });
    // The exchange is over even before the first sign-in.
    const again = await exchange(service, await writeProof(deployer));
    expect([again.status, again.body.detail]).toEqual([409, expect.stringContaining("was set already")]);

    expect((await signIn(service, ADMIN.password)).status).toBe(401);
    const { status, body } = await signIn(service, PASSWORD);
    expect(status).toBe(200);
    // A new process finds the same configured password, and resets nothing.
    const host = await service.addHost();
    const token = body.access_token;
    expect((await service.call("GET", `${host.url}/auth/me`, { token })).body).toMatchObject({
      username: ADMIN.username,
    });
    const entries = await service.call("GET", "/audit/entries?event_type=user.firstPasswordSet", { token });
    expect(
      entries.body.items.map(({ outcome, details }: { outcome: string; details: { reason?: string } }) => [
        outcome,
        details.reason,
      ]),
    ).toEqual([
      ["success", undefined],
      ["intent", undefined],
      ["refused", "it is for another verifier"],
      ["refused", "another identity than the deployer wrote it"],
      ["refused", "another identity than the deployer wrote it"],
    ]);
  });
});

describe("a service whose clock is 20 minutes ahead of Azure's", () => {
  // The service takes its time from storage.
  const storageClock = movedClock();
  let service: Service;
  beforeAll(async () => {
    await storageClock.add(20 * MINUTE_MS);
    service = await startService({ storageEnv: storageClock.environment });
  });
  afterAll(async () => {
    await service?.stop();
    storageClock.remove();
  });

  test("rejects an assignment as too old", async () => {
    const { status, body } = await exchange(service, await writeProof(await deployerOf(service)));
    expect([status, body.detail]).toEqual([403, expect.stringContaining("not written within the last 15 minutes")]);
  });
});

describe("a service that an administrator has used, or that names no deployer", () => {
  const services: Service[] = [];
  afterAll(() => Promise.all(services.map((service) => service.stop())));

  test("rejects the deployer's valid proof, without calling Azure", async () => {
    const used = await startService();
    const unnamed = await startService({ named: false });
    services.push(used, unnamed);
    await used.signIn(ADMIN);
    for (const [service, reason] of [
      [used, "has used this service"],
      [unnamed, "names no deployer"],
    ] as const) {
      const proof = await writeProof(await deployerOf(service));
      const { status, body } = await exchange(service, proof);
      expect([status, body.detail]).toEqual([409, expect.stringContaining(reason)]);
      expect(service.cloud.control.counts()).not.toHaveProperty(["arm.readRoleAssignment"]);
      expect((await signIn(service, ADMIN.password)).status).toBe(200);
    }
  });
});
