import { connect as connectTcp, createServer, type Server, type Socket } from "node:net";
import { createSecureContext, TLSSocket } from "node:tls";
import type { Tokens } from "./tokens.ts";

/** Domain of PostgreSQL servers. */
export const POSTGRESQL_DOMAIN = "postgres.localhost";
/** Audience of tokens for PostgreSQL and MySQL servers. */
export const DATABASE_AUDIENCE = "https://ossrdbms-aad.database.windows.net";

/** https://www.postgresql.org/docs/current/protocol-message-formats.html */
const SSL_REQUEST = 80_877_103;
const CLEARTEXT_PASSWORD = Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 3]);

/** What happens to the next statement that contains a text. */
export interface StatementFault {
  statement: string;
  /**
   * `reset`: closes the connection before the server gets the statement. `loseAnswer`: the server runs it, and the client gets no
   * answer.
   */
  kind: "reset" | "loseAnswer";
}

interface DatabaseServer {
  /** Port of a real PostgreSQL server on this machine, which trusts connections of `identities`. */
  port: number;
  /** Names of the users that sign in with an Entra token, by the object ID of their principal. */
  identities: ReadonlyMap<string, string>;
}

/**
 * Simulates what Azure adds to PostgreSQL flexible servers: TLS with the name of the server, and sign-in with Entra tokens. Everything
 * else passes through to real PostgreSQL servers, which tests start.
 */
export class Databases {
  readonly #tokens: Tokens;
  readonly #certificate: { key: string; certificate: string };
  readonly #servers = new Map<string, DatabaseServer>();
  readonly #sockets = new Set<Socket>();
  readonly #listener: Server;
  #port = 0;
  /** Texts that clients sent after they signed in, oldest first: statements and their parameters. */
  readonly statements: string[] = [];
  readonly faults: StatementFault[] = [];

  constructor(tokens: Tokens, certificate: { key: string; certificate: string }) {
    this.#tokens = tokens;
    this.#certificate = certificate;
    this.#listener = createServer((socket) => this.#accept(socket));
  }

  /**
   * Puts a real server behind the name `NAME.postgres.localhost`.
   *
   * @param identities - Names of the users that sign in with a token, by the object ID of their principal.
   * @returns the host with its port, for `fullyQualifiedDomainName`.
   */
  async serve(name: string, port: number, identities: ReadonlyMap<string, string>): Promise<string> {
    if (this.#port === 0) {
      await new Promise<void>((resolve) => this.#listener.listen(0, "127.0.0.1", resolve));
      this.#port = (this.#listener.address() as { port: number }).port;
    }
    const host = `${name}.${POSTGRESQL_DOMAIN}`;
    this.#servers.set(host, { port, identities });
    return `${host}:${this.#port}`;
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    if (this.#port !== 0) await new Promise((resolve) => this.#listener.close(resolve));
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on("close", () => this.#sockets.delete(socket));
    socket.on("error", () => socket.destroy());
  }

  #accept(socket: Socket): void {
    this.#keep(socket);
    socket.once("data", (request: Buffer) => {
      if (request.length < 8 || request.readUInt32BE(4) !== SSL_REQUEST) {
        socket.destroy();
        return;
      }
      socket.write("S");
      const { key, certificate: cert } = this.#certificate;
      const secure = new TLSSocket(socket, { isServer: true, secureContext: createSecureContext({ key, cert }) });
      this.#keep(secure);
      secure.once("data", (startup: Buffer) => {
        // Node sets the name that the client asked for once the handshake is done.
        const host = (secure as unknown as { servername: string | false }).servername;
        const server = this.#servers.get(host === false ? "" : host);
        if (server === undefined) secure.destroy();
        else this.#signIn(secure, server, startup);
      });
    });
  }

  /** Checks the token of a user that has an Entra principal. Other users sign in to the real server. */
  #signIn(client: Socket, server: DatabaseServer, startup: Buffer): void {
    const texts = startup.subarray(8).toString("utf8").split("\0");
    const user = texts[texts.indexOf("user") + 1] ?? "";
    if (![...server.identities.values()].includes(user)) {
      this.#connect(client, server, startup);
      return;
    }
    client.write(CLEARTEXT_PASSWORD);
    client.once("data", (message: Buffer) => {
      const claims = this.#tokens.check(message.subarray(5, -1).toString("utf8"), [DATABASE_AUDIENCE]);
      if (typeof claims === "string" || server.identities.get(claims.oid) !== user) {
        client.end(errorMessage("28P01", "The access token is not valid for the user."));
        return;
      }
      this.#connect(client, server, startup);
    });
  }

  #connect(client: Socket, { port }: DatabaseServer, startup: Buffer): void {
    const backend = connectTcp(port, "127.0.0.1");
    this.#keep(backend);
    let isLost = false;
    backend.write(startup);
    client.on("data", (chunk: Buffer) => {
      const text = chunk.toString("latin1");
      // Messages with a password start with `p`.
      if (!text.startsWith("p")) this.statements.push(text);
      const index = this.faults.findIndex(({ statement }) => text.includes(statement));
      const [fault] = index < 0 ? [] : this.faults.splice(index, 1);
      if (fault?.kind === "reset") {
        client.destroy();
        return;
      }
      isLost ||= fault !== undefined;
      backend.write(chunk);
    });
    backend.on("data", (chunk: Buffer) => {
      if (isLost) client.destroy();
      else client.write(chunk);
    });
    client.on("close", () => backend.destroy());
    backend.on("close", () => client.destroy());
  }
}

/** Returns an error message of the protocol. */
function errorMessage(code: string, message: string): Buffer {
  const fields = Buffer.from(`SFATAL\0VFATAL\0C${code}\0M${message}\0\0`);
  const head = Buffer.alloc(5);
  head.write("E");
  head.writeUInt32BE(fields.length + 4, 1);
  return Buffer.concat([head, fields]);
}
