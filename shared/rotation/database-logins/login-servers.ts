import { randomBytes } from "node:crypto";
import * as z from "zod";
import type { Arm } from "../../platform/azure/arm.ts";
import { type CallTarget, CloudFailure, failure } from "../../platform/azure/failure.ts";
import type { Identity } from "../../platform/azure/identity.ts";
import {
  type PostgresConnection,
  type ServerAddress,
  scramVerifier,
  withPostgres,
} from "../../platform/azure/postgresql.ts";
import { resourceName, resourcePath } from "../../platform/azure/resource-id.ts";
import type { CloudEndpoints } from "../../platform/config/clouds.ts";
import { type DatabaseEngine, engineOfServer } from "./engines.ts";
import { differencesOfGrants, missingRights } from "./grants.ts";

/** Two users of a database server, as they were registered. */
export interface LoginPair {
  serverId: string;
  /** Database to which the users connect. */
  database: string;
  users: readonly [string, string];
  /** Name of the service's identity on the server. */
  signInAs: string;
}

/** `unclear`: the server gave no answer about the password, so a retry may give one. */
export type SignInResult = "accepted" | "rejected" | "unclear";

/** Database servers of Azure with the users whose passwords are rotated. Every method throws `CloudFailure`. */
export interface LoginServers {
  /** Returns the host of the server, from Azure Resource Manager. */
  hostOf(serverId: string): Promise<string>;
  /** Signs in as a user on a new connection. */
  signIn(pair: LoginPair, user: string, password: string): Promise<SignInResult>;
  /**
   * Sets the password of a user, with the service's identity. Safe to repeat. After an `unclear` failure a sign-in tells whether
   * it was set.
   */
  setPassword(pair: LoginPair, user: string, password: string): Promise<void>;
  /** Returns what the server or the service's identity lacks to change both users, as sentences. */
  missing(pair: LoginPair): Promise<string[]>;
  /** Returns how the rights of the users differ, as sentences. Signs in as `user`, because every user can read the catalog. */
  differences(pair: LoginPair, user: string, password: string): Promise<string[]>;
}

/** Database in which statements with the service's identity run. Users of applications usually can't create objects in it. */
const OWN_DATABASE = "postgres";
const SALT_BYTES = 16;
/** No such role, or no rule of the server allows the sign-in: https://www.postgresql.org/docs/current/errcodes-appendix.html */
const SIGN_IN_NOT_ALLOWED = "28000";

const serverAnswer = z.object({
  properties: z.object({
    fullyQualifiedDomainName: z.string().min(1),
    authConfig: z
      .object({ activeDirectoryAuth: z.string().optional(), passwordAuth: z.string().optional() })
      .optional(),
  }),
});

export function createLoginServers(deps: {
  arm: Arm;
  identity: Pick<Identity, "credential">;
  cloud: CloudEndpoints;
}): LoginServers {
  const { arm, identity, cloud } = deps;

  /** Reads the server. Its host must be in the domain of the cloud's servers, because it gets passwords and tokens. */
  async function serverOf(serverId: string) {
    const engine = engineOfServer(serverId);
    const target = {
      operation: "read the database server",
      resource: resourceName(serverId),
      grant: `a role on the server with the action ${engine.actions.join(", ")}`,
    };
    const path = resourcePath(serverId, engine.type.toLowerCase());
    const { properties } = await arm.call({ path, apiVersion: engine.apiVersion, target }, serverAnswer);
    const address = addressOf(properties.fullyQualifiedDomainName, engine);
    if (address === undefined || !cloud.resourceDomains.postgresql.some((one) => address.host.endsWith(`.${one}`))) {
      throw failure("foreignHost", target, "the host of the server is in no domain of the configured cloud", {
        remedy: "Check AZURE_CLOUD and AZURE_RESOURCE_DOMAINS.",
      });
    }
    return { address, authentication: properties.authConfig ?? {} };
  }

  /** Runs work as a user of the pair, in the database of the pair. */
  async function asUser<T>(
    pair: LoginPair,
    user: string,
    password: string,
    work: (connection: PostgresConnection) => Promise<T>,
  ): Promise<T> {
    const { address } = await serverOf(pair.serverId);
    const target = { ...targetOf(pair, `sign in as ${user}`), grant: `CONNECT on the database ${pair.database}` };
    return await withPostgres(address, { database: pair.database, user, password }, target, work);
  }

  /** Runs work as the service's identity, whose access token is its password. */
  async function asIdentity<T>(
    pair: LoginPair,
    operation: string,
    work: (connection: PostgresConnection) => Promise<T>,
  ): Promise<T> {
    const { address } = await serverOf(pair.serverId);
    const credential = await identity.credential();
    const token = await credential.getToken(`${cloud.databaseAudience}/.default`);
    if (token === null) throw new Error("The credential returned neither a token nor an error.");
    const login = { database: OWN_DATABASE, user: pair.signInAs, password: token.token };
    return await withPostgres(address, login, targetOf(pair, operation), work);
  }

  return {
    hostOf: async (serverId) => (await serverOf(serverId)).address.host,

    async signIn(pair, user, password) {
      try {
        return await asUser(pair, user, password, async ({ query }): Promise<SignInResult> => {
          await query("SELECT 1");
          return "accepted";
        });
      } catch (error) {
        if (!(error instanceof CloudFailure)) throw error;
        if (error.code === "unauthenticated") return "rejected";
        if (error.code === "unreachable" || error.code === "timedOut") return "unclear";
        throw error;
      }
    },

    async setPassword(pair, user, password) {
      const verifier = scramVerifier(password, randomBytes(SALT_BYTES));
      await asIdentity(pair, `set the password of ${user}`, async ({ query, quoteName, quoteText }) => {
        await query(`ALTER ROLE ${quoteName(user)} PASSWORD ${quoteText(verifier)}`);
      });
    },

    async missing(pair) {
      const { authentication } = await serverOf(pair.serverId);
      const { activeDirectoryAuth, passwordAuth } = authentication;
      const sentences = [
        ...(isDisabled(activeDirectoryAuth)
          ? ["The server does not accept Entra tokens. Enable Entra authentication."]
          : []),
        ...(isDisabled(passwordAuth) ? ["The server accepts no passwords, so there is nothing to rotate."] : []),
      ];
      if (sentences.length > 0) return sentences;
      try {
        return await asIdentity(pair, "check the users", (connection) =>
          missingRights(connection, pair.users, pair.signInAs),
        );
      } catch (error) {
        if (!(error instanceof CloudFailure)) throw error;
        if (error.code !== "unauthenticated" && error.cloudCode !== SIGN_IN_NOT_ALLOWED) throw error;
        return [
          `The server rejected the access token of the service's identity for ${pair.signInAs}. Create that role for the identity, as docs/rotation-databases.md describes, and check that the server's firewall admits the service.`,
        ];
      }
    },

    differences: (pair, user, password) =>
      asUser(pair, user, password, (connection) => differencesOfGrants(connection, pair.users)),
  };
}

/** Creates the failure of a sign-in to which the server gave no clear answer. */
export const loginUnclear = (pair: LoginPair, user: string): CloudFailure =>
  failure("unreachable", targetOf(pair, `sign in as ${user}`), "the server gave no clear answer", {
    remedy: "Check that the server runs, and that its network rules or private endpoint admit the service.",
  });

const isDisabled = (setting: string | undefined): boolean => setting?.toLowerCase() === "disabled";

const targetOf = ({ serverId, users }: LoginPair, operation: string): CallTarget => ({
  operation,
  resource: `database server ${resourceName(serverId)}`,
  grant: `CREATEROLE on the server and ADMIN OPTION on ${users.join(" and ")}`,
});

/** Returns the address of a server. Azure's servers use the default port, and only a simulated cloud names another one. */
function addressOf(name: string, { port }: DatabaseEngine): ServerAddress | undefined {
  const url = URL.canParse(`tcp://${name}`) ? new URL(`tcp://${name}`) : undefined;
  if (url === undefined || url.hostname === "" || url.username !== "") return undefined;
  return { host: url.hostname.toLowerCase(), port: url.port === "" ? port : Number(url.port) };
}
