import { type AddressInfo, createServer, type Server, Socket } from "node:net";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  ADMINISTRATOR,
  type Deployment,
  from,
  HERE,
  type Instance,
  type InstanceOptions,
  ORIGIN,
  problemOf,
  startDeployments,
} from "./support.ts";

let deployments: Awaited<ReturnType<typeof startDeployments>>;
let deployment: Deployment;
beforeAll(async () => {
  deployments = await startDeployments(60);
});
afterAll(() => deployments.stop());
beforeEach(() => {
  deployment = deployments.next();
});

/** Counts connections on every address of this machine. */
let listener: Server;
let port: number;
let connected = 0;
beforeAll(async () => {
  listener = createServer((socket) => {
    connected += 1;
    socket.destroy();
  });
  await new Promise<void>((resolve) => listener.listen(0, "::", resolve));
  ({ port } = listener.address() as AddressInfo);
});
afterAll(() => void listener.close());

/** Connections to the listener or to the https port, on which nothing listens here. */
const attempts: string[] = [];
const connect = Socket.prototype.connect;
beforeAll(() => {
  Socket.prototype.connect = function (this: Socket, ...given: unknown[]) {
    const [to] = [given[0]].flat() as { host?: string; port?: number }[];
    if ([443, port].includes(Number(to?.port))) attempts.push(`${to!.host}:${to!.port}`);
    return (connect as (...all: unknown[]) => Socket).apply(this, given);
  } as typeof connect;
});
afterAll(() => {
  Socket.prototype.connect = connect;
});

/** Host names of a resolver that an attacker controls. */
const RESOLVED: Record<string, string[]> = {
  "private.example": ["10.0.0.1"],
  "loopback.example": ["127.0.0.1"],
  "six.example": ["::1"],
  "mixed.example": ["8.8.8.8", "127.0.0.1"],
  "mapped.example": ["::ffff:127.0.0.1"],
  "metadata.example": ["169.254.169.254"],
  "nat64.example": ["64:ff9b::7f00:1"],
  // test/outgoing tests that a name is resolved once, and that the checked address is the one connected to.
};
const resolve: NonNullable<InstanceOptions["resolve"]> = async (host) =>
  (RESOLVED[host] ?? [host === "localhost" ? "127.0.0.1" : host]).map((address) => ({
    address,
    family: address.includes(":") ? 6 : 4,
  }));

/** All URL spellings of an address of this machine or its network. */
const PRIVATE = [
  "127.0.0.1",
  "127.1",
  "2130706433",
  "0x7f000001",
  "0x7f.1",
  "0177.0.0.1",
  "0",
  "0.0.0.0",
  "127.0.0.1.",
  "localhost",
  "[::1]",
  "[::]",
  "[::ffff:127.0.0.1]",
  "[::ffff:7f00:1]",
  "[0:0:0:0:0:0:0:1]",
  "[::127.0.0.1]",
  "[fe80::1]",
  "10.0.0.1",
  "172.16.0.1",
  "192.168.0.1",
  "100.64.0.1",
  "169.254.169.254",
  "168.63.129.16",
  "[fd00:ec2::254]",
  "①②⑦.⓪.⓪.①",
  ...Object.keys(RESOLVED),
];

const issuers = () => PRIVATE.flatMap((host) => [`https://${host}:${port}`, `https://${host}`]);

describe("no packet reaches a private address", () => {
  test("when an anonymous caller reads a discovery document", async () => {
    const instance = deployment.start({
      resolve,
      // Configured hosts are allowed for configured providers, but not here.
      config: { PRIVATE_TARGET_HOSTS: [`127.0.0.1:${port}`, `localhost:${port}`, "127.0.0.1:443"] },
    });
    let address = 0;
    const codes = new Set<string>();
    for (const issuer of [...issuers(), `http://127.0.0.1:${port}`]) {
      codes.add(await problemOf(instance.sso.discover(issuer, from(`192.0.2.${address++}`))));
    }
    expect([...codes]).toEqual(["invalidRequest"]);
    expect([connected, attempts]).toEqual([0, []]);
  });

  test("when a configuration is tested or saved, except for the configured hosts", async () => {
    const instance = deployment.start({ resolve });
    const client = { oidcClientId: "c", oidcClientSecret: "s" };
    for (const oidcIssuer of [...issuers(), `http://127.0.0.1:${port}`]) {
      const tested = await instance.sso.test({ oidcIssuer, ...client }, ADMINISTRATOR, ORIGIN).then(
        ({ success }) => success,
        (error: { code: string }) => error.code,
      );
      expect([false, "invalidRequest"]).toContain(tested);
      const saved = instance.sso.configure(
        { isEnabled: true, oidcIssuer, ...client },
        undefined,
        ADMINISTRATOR,
        ORIGIN,
      );
      expect(await problemOf(saved)).toBe("invalidRequest");
    }
    expect([connected, attempts]).toEqual([0, []]);

    // Control: the same address as a configured host.
    const named = deployment.start({ resolve, config: { PRIVATE_TARGET_HOSTS: [`127.0.0.1:${port}`] } });
    await named.sso.test({ oidcIssuer: `http://127.0.0.1:${port}`, ...client }, ADMINISTRATOR, ORIGIN);
    expect([connected, attempts]).toEqual([1, [`127.0.0.1:${port}`]]);
  });

  test("over plain http, if the service itself is not on this machine", async () => {
    const { issuer: oidcIssuer } = deployments.cloud.oidc;
    const test = (instance: Instance) => problemOf(instance.sso.test({ oidcIssuer }, ADMINISTRATOR, ORIGIN));
    expect(await test(deployment.start())).toBe("none");
    const config = { PUBLIC_BASE_URL: "https://lifecycle.acme.example" };
    expect(await test(deployment.start({ config }))).toBe("invalidRequest");
    expect(await test(deployment.start({ config: { PUBLIC_BASE_URL: undefined } }))).toBe("invalidRequest");
  });
});

describe("reading a discovery document", () => {
  test("is limited to ten times a minute per address", async () => {
    const instance = deployment.start({ resolve });
    const codes: string[] = [];
    for (let call = 0; call < 11; call++) codes.push(await problemOf(instance.sso.discover("https://127.0.0.1", HERE)));
    expect(codes).toEqual([...Array.from({ length: 10 }, () => "invalidRequest"), "rateLimited"]);
    expect(await problemOf(instance.sso.discover("https://127.0.0.1", from("192.0.2.77")))).toBe("invalidRequest");
  });

  test("returns the same error for a missing, private or malformed address", async () => {
    const instance = deployment.start({ resolve });
    const failureMessage = (issuer: string) =>
      instance.sso.discover(issuer, HERE).then(
        () => "",
        (error: Error) => error.message,
      );
    const [refused, unknown] = [
      await failureMessage("https://private.example"),
      await failureMessage("https://no.such.name.invalid"),
    ];
    expect(refused).toBe(unknown);
    expect(refused).not.toContain("10.0.0.1");
  });
});
