import { createHash, createHmac, pbkdf2Sync } from "node:crypto";
import { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "pg";
import { blockedReason } from "../outgoing/allowed-addresses.ts";
import { resolveAllowedAddress, Unreachable } from "../outgoing/outgoing.ts";
import { SECOND_MS } from "../time.ts";
import { type CallTarget, CloudFailure, failure } from "./failure.ts";

/** Connections to PostgreSQL servers of Azure, with TLS and time limits. */

/** Address of a server, as Azure Resource Manager returns it. */
export interface ServerAddress {
  host: string;
  port: number;
}

/** Who signs in, and to which database. */
export interface PostgresLogin {
  database: string;
  user: string;
  /** The password, or an Entra access token. */
  password: string;
}

/** An open connection. A value of a query is never logged by this service, and only names of columns are typed. */
export interface PostgresConnection {
  query<T>(text: string, values?: readonly unknown[]): Promise<T[]>;
  /** Quotes a name or a text for a statement that accepts no parameters. */
  quoteName(name: string): string;
  quoteText(text: string): string;
}

/** Limits of one connection. A statement ends on the server before its client gives up. */
const CONNECT_MS = 15 * SECOND_MS;
const STATEMENT_MS = 15 * SECOND_MS;
const QUERY_MS = 20 * SECOND_MS;
const END_MS = 2 * SECOND_MS;

/** https://www.postgresql.org/docs/current/errcodes-appendix.html */
const INVALID_PASSWORD = "28P01";
const INSUFFICIENT_PRIVILEGE = "42501";
const UNKNOWN_DATABASE = "3D000";

/**
 * Signs in, runs work and closes the connection. Connects to one checked address of the host, and verifies the certificate of
 * the host's name.
 *
 * The search path contains only the system catalog. Otherwise a user of the database could create functions or operators that
 * statements of this service would call with its rights.
 *
 * @throws {CloudFailure} `unauthenticated` if the server rejected the password; `accessDenied` for a missing right of the user;
 * `notFound` for an unknown database; `unreachable`, also for a blocked address; `timedOut`. Its message contains no statement and
 * no value.
 */
export async function withPostgres<T>(
  { host, port }: ServerAddress,
  login: PostgresLogin,
  target: CallTarget,
  work: (connection: PostgresConnection) => Promise<T>,
): Promise<T> {
  const { default: pg } = await import("pg");
  const socket = new Socket();
  let client: Client | undefined;
  try {
    const { address } = await resolveAllowedAddress(host, {
      blocked: (one) => blockedReason(one, "named"),
      remedy: "The address of an Azure resource must not be one of the platform.",
      signal: AbortSignal.timeout(CONNECT_MS),
    });
    client = new pg.Client({
      ...login,
      // The checked address. TLS uses the name.
      host: address,
      port,
      stream: () => socket,
      ssl: { servername: host, rejectUnauthorized: true, minVersion: "TLSv1.2" },
      connectionTimeoutMillis: CONNECT_MS,
      statement_timeout: STATEMENT_MS,
      query_timeout: QUERY_MS,
      options: "-c search_path=pg_catalog",
      application_name: "credential-lifecycle",
    });
    // An error between two queries, such as a closed connection, also fails the next query.
    client.on("error", () => {});
    await client.connect();
    const connected = client;
    return await work({
      async query<R>(text: string, values: readonly unknown[] = []) {
        const { rows } = await connected.query(text, [...values]);
        return rows as R[];
      },
      quoteName: (name) => connected.escapeIdentifier(name),
      quoteText: (text) => connected.escapeLiteral(text),
    });
  } catch (error) {
    throw asPostgresFailure(error, login.user, target);
  } finally {
    // The library waits until the server closes the connection, which a server that hangs never does.
    await Promise.race([client?.end().catch(() => {}), sleep(END_MS, undefined, { ref: false })]);
    socket.destroy();
  }
}

/** Converts an error. The errors of the library can contain a statement, so nothing but their code is used. */
function asPostgresFailure(error: unknown, user: string, target: CallTarget): CloudFailure {
  if (error instanceof CloudFailure) return error;
  if (error instanceof Unreachable)
    return failure("unreachable", target, error.message.replace(/\.$/, ""), { remedy: CHECK_NETWORK });
  const { code, message = "" } = error as { code?: string; message?: string };
  const cloudCode = code === undefined ? undefined : code.slice(0, 40);
  if (cloudCode === INVALID_PASSWORD)
    return failure("unauthenticated", target, "the server rejected the sign-in", {
      remedy: "Check that the user exists on the server, and who changed its password.",
      cloudCode,
    });
  if (cloudCode === INSUFFICIENT_PRIVILEGE)
    return failure("accessDenied", target, "the user does not have the required right", {
      remedy: `Give the database user ${user} ${target.grant ?? "the right"}.`,
      cloudCode,
    });
  if (cloudCode === UNKNOWN_DATABASE)
    return failure("notFound", target, "the server has no database of this name", {
      remedy: "Register the login again with the name of an existing database.",
      cloudCode,
    });
  if (/timeout/i.test(message))
    return failure("timedOut", target, "the server did not answer in time", { remedy: CHECK_NETWORK, cloudCode });
  // PostgreSQL's codes have five characters. Any other code is one of the network or of TLS.
  const isAnswer = cloudCode !== undefined && /^[0-9A-Z]{5}$/.test(cloudCode);
  const reason = isAnswer ? "the server answered with an error" : "the connection failed";
  return failure("unreachable", target, reason, { remedy: CHECK_NETWORK, cloudCode });
}

const CHECK_NETWORK =
  "Check that the server runs, and that its network rules or private endpoint admit the service and its certificate is valid.";

/** https://www.postgresql.org/docs/current/runtime-config-connection.html#GUC-SCRAM-ITERATIONS */
const SCRAM_ITERATIONS = 4096;
const SCRAM_KEY_BYTES = 32;

/**
 * Returns the verifier that PostgreSQL stores for a password. A statement with the verifier sets the password, and neither the
 * statement nor the server's log contains it. https://www.rfc-editor.org/rfc/rfc7677
 *
 * @param password - Characters of ASCII only, which need no normalization.
 * @param salt - 16 random bytes.
 */
export function scramVerifier(password: string, salt: Uint8Array): string {
  const salted = pbkdf2Sync(password, salt, SCRAM_ITERATIONS, SCRAM_KEY_BYTES, "sha256");
  const hmac = (text: string) => createHmac("sha256", salted).update(text).digest();
  const storedKey = createHash("sha256").update(hmac("Client Key")).digest("base64");
  const serverKey = hmac("Server Key").toString("base64");
  return `SCRAM-SHA-256$${SCRAM_ITERATIONS}:${Buffer.from(salt).toString("base64")}$${storedKey}:${serverKey}`;
}
