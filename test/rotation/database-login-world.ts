import type { Company } from "simulated-cloud/company/company.ts";
import { expect } from "vitest";
import { VAULTS, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { readLogin } from "../../shared/rotation/database-logins/login-values.ts";
import type { RegistrationRequest } from "../../shared/rotation/database-logins/registrations.ts";
import type { DatabaseLoginRequest } from "../../shared/rotation/request.ts";
import { isOver, type RotationRecord } from "../../shared/rotation/rotation.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { vaultRecord } from "../inventory/write-assets.ts";
import { type PostgresServer, SERVICE_USER, startPostgres } from "../support/postgresql.ts";
import { openStorage } from "../support/storage.ts";
import { BOSS, SERVICE_VAULT, VAULT, World } from "./world.ts";

const SUBSCRIPTION = "11111111-1111-4111-8111-111111111111";
const SECOND_VAULT = "kv-second";
const company: Company = {
  subscriptions: [{ id: SUBSCRIPTION, name: "Shop", vaults: [{ name: VAULT }, { name: SECOND_VAULT }] }],
};

/** Two users of a database server, with the vault secrets that store the first one. */
export interface RegisteredPair {
  serverId: string;
  users: [string, string];
  /** The first password of each user. */
  passwords: [string, string];
  places: { vaultName: string; secretName: string }[];
  registration: RegistrationRequest;
  request: DatabaseLoginRequest;
}

/** Creates two users with the same rights, as docs/rotation-databases.md describes. */
export async function createUsers(
  postgres: PostgresServer,
  name: string,
): Promise<Pick<RegisteredPair, "users" | "passwords">> {
  const users: [string, string] = [`${name}_a`, `${name}_b`];
  const passwords: [string, string] = [`First-${name}-password`, `Second-${name}-password`];
  await postgres.sql(
    `CREATE ROLE ${name} NOLOGIN; CREATE TABLE ${name}_orders (id int); GRANT SELECT ON ${name}_orders TO ${name}`,
  );
  for (const [index, user] of users.entries()) {
    await postgres.sql(
      `CREATE ROLE ${user} LOGIN PASSWORD '${passwords[index]}' IN ROLE ${name}; GRANT ${user} TO ${SERVICE_USER} WITH ADMIN TRUE, INHERIT FALSE, SET FALSE`,
    );
  }
  return { users, passwords };
}

/** Opens a world with a real PostgreSQL server, and two vaults in the inventory. */
export async function openLoginWorld() {
  const [azurite, postgres] = await Promise.all([openStorage(), startPostgres()]);
  const { cloud, config } = await startTestCloud({ company });
  const world = new World(cloud, config, azurite.connectionString());
  const { control } = cloud;
  const { objectId = "" } = await createIdentity(config).describe();
  for (const name of [VAULT, SECOND_VAULT]) {
    await world.tables().put(Vaults, VAULTS, vaultKey(name), {
      ...vaultRecord(name, SUBSCRIPTION),
      id: control.vaultId(name)!,
      vaultUri: world.vaultUriOf(name),
    });
  }
  let pairs = 0;
  const storedValue = (place: { vaultName: string; secretName: string }) =>
    control.secretValue(place.vaultName, place.secretName) ?? "";
  const loginOf = (place: { vaultName: string; secretName: string }) => readLogin(storedValue(place)).login!;

  /**
   * Adds a server with two users, and two vault secrets that store the first one. Registers nothing.
   *
   * @param prefix - Start of the server's host name.
   */
  async function addPair(prefix = ""): Promise<RegisteredPair> {
    const name = `shop${++pairs}`;
    const { users, passwords } = await createUsers(postgres, name);
    const fullyQualifiedDomainName = await control.databases.serve(
      `${prefix}${name}`,
      postgres.port,
      new Map([[objectId, SERVICE_USER]]),
    );
    const serverId = control.consumers.put(SUBSCRIPTION, {
      type: "Microsoft.DBforPostgreSQL/flexibleServers",
      name,
      resourceGroup: "rg-shop",
      properties: { fullyQualifiedDomainName, authConfig: { activeDirectoryAuth: "Enabled", passwordAuth: "Enabled" } },
    });
    const host = fullyQualifiedDomainName.split(":")[0]!;
    const places = [
      { vaultName: VAULT, secretName: `${name}-url` },
      { vaultName: SECOND_VAULT, secretName: `${name}-json` },
    ];
    const uri = `postgresql://${users[0]}:${passwords[0]}@${host}:5432/postgres?sslmode=require`;
    control.putSecret(VAULT, { name: places[0]!.secretName, value: uri, tags: { owner: "shop@acme.example" } });
    const json = `{ "username": "${users[0]}",\n  "password": "${passwords[0]}", "host": "${host}", "port": 5432 }`;
    control.putSecret(SECOND_VAULT, { name: places[1]!.secretName, value: json });
    const registration = { serverId, database: "postgres", users, signInAs: SERVICE_USER, places };
    const request: DatabaseLoginRequest = { issuer: "databaseLogin", loginId: "", overlapDays: 7 };
    return { serverId, users, passwords, places, registration, request };
  }

  return {
    world,
    azurite,
    control,
    postgres,
    objectId,
    storedValue,
    loginOf,
    addPair,

    /** Adds a pair and registers it. */
    async addRegistered(): Promise<RegisteredPair> {
      const pair = await addPair();
      const { credentialId } = await world.logins().register(pair.registration, BOSS);
      return { ...pair, request: { ...pair.request, loginId: credentialId } };
    },

    /** Watches from now on that the login of each place signs in. Returns the violations. */
    recordViolations({ places }: Pick<RegisteredPair, "places">): string[] {
      const violations: string[] = [];
      const checked = new Set<string>();
      world.afterWrite = async () => {
        for (const place of places) {
          const { user, password } = loginOf(place);
          if (!(await postgres.accepts(user, password))) violations.push(`${place.vaultName}/${place.secretName}`);
          checked.add(user);
        }
      };
      return violations;
    },

    /** Checks what must be true after every rotation of a login, also a failed one. */
    async expectInvariants(
      { users, passwords, places, request }: RegisteredPair,
      row: RotationRecord,
      violations: readonly string[],
    ) {
      const label = `${row.status} ${JSON.stringify(row.failure ?? row.attention ?? "")}`;
      expect(violations, label).toEqual([]);
      const isCompleted = row.status === "completed";
      for (const place of places) {
        const login = loginOf(place);
        expect(login.user, label).toBe(users[isCompleted ? 1 : 0]);
        expect(await postgres.accepts(login.user, login.password), label).toBe(true);
      }
      expect(await postgres.accepts(users[0], passwords[0]), label).toBe(!isCompleted);
      if (!isOver(row.status)) return;
      const copies = control.items(SERVICE_VAULT, "secrets").filter(({ name }) => name.includes(row.rotationId));
      expect(copies, label).toEqual([]);
      expect(await world.start().unfinishedOf(request.loginId)).toBeUndefined();
    },

    async stop() {
      await cloud.stop();
      await postgres.stop();
      await azurite.stop();
    },
  };
}
