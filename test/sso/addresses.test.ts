import { type AddressInfo, createServer, type Server, Socket } from "node:net";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  ADMINISTRATOR,
  CALLER,
  callerAt,
  type Deployment,
  type Instance,
  type InstanceOptions,
  ORIGIN,
  problemOf,
  startDeployments,
} from "./support.ts";

// Tests that no user can make the service connect to its own machine or network (server-side request forgery) with the address
// of an identity provider. A replaced `Socket.connect` and a listening server record every connection.

let deployments: Awaited<ReturnType<typeof startDeployments>>;
let deployment: Deployment;
beforeAll(async () => {
  deployments = await startDeployments();
});
afterAll(() => deployments.stop());
beforeEach(async () => {
  deployment = await deployments.next();
});

/** A server on all addresses of this machine that counts connections. */
let listener: Server;
let port: number;
let connectionCount = 0;
beforeAll(async () => {
  listener = createServer((socket) => {
    connectionCount += 1;
    socket.destroy();
  });
  await new Promise<void>((resolve) => listener.listen(0, "::", resolve));
  ({ port } = listener.address() as AddressInfo);
});
afterAll(() => void listener.close());

/** Attempted connections to the listener's port or to port 443, on which nothing listens here. */
const connectAttempts: string[] = [];
const originalConnect = Socket.prototype.connect;
beforeAll(() => {
  Socket.prototype.connect = function (this: Socket, ...parameters: unknown[]) {
    const [target] = [parameters[0]].flat() as { host?: string; port?: number }[];
    if ([443, port].includes(Number(target?.port))) connectAttempts.push(`${target!.host}:${target!.port}`);
    return (originalConnect as (...all: unknown[]) => Socket).apply(this, parameters);
  } as typeof originalConnect;
});
afterAll(() => {
  Socket.prototype.connect = originalConnect;
});

/** Answers of a DNS resolver that an attacker controls: private addresses for public names. */
const RESOLVED: Record<string, string[]> = {
  "private.example": ["10.0.0.1"],
  "loopback.example": ["127.0.0.1"],
  "six.example": ["::1"],
  "mixed.example": ["8.8.8.8", "127.0.0.1"],
  "mapped.example": ["::ffff:127.0.0.1"],
  "metadata.example": ["169.254.169.254"],
  "nat64.example": ["64:ff9b::7f00:1"],
  // A name that resolves differently the second time is covered by test/outgoing.
};
const resolve: NonNullable<InstanceOptions["resolve"]> = async (host) =>
  (RESOLVED[host] ?? [host === "localhost" ? "127.0.0.1" : host]).map((address) => ({
    address,
    family: address.includes(":") ? 6 : 4,
  }));

/** Private addresses in many URL spellings, and names that resolve to private addresses. */
const PRIVATE_HOSTS = [
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

const issuers = () => PRIVATE_HOSTS.flatMap((host) => [`https://${host}:${port}`, `https://${host}`]);

describe("the service does not connect to a private address", () => {
  test("when an anonymous caller reads a discovery document", async () => {
    const instance = deployment.start({
      resolve,
      // These hosts are allowed for configured providers, but not for discovery, which anonymous callers can request.
      config: { PRIVATE_TARGET_HOSTS: [`127.0.0.1:${port}`, `localhost:${port}`, "127.0.0.1:443"] },
    });
    /** Last number of the caller's address, another one for each call, because calls from one address are limited. */
    let address = 0;
    const codes = new Set<string>();
    for (const issuer of [...issuers(), `http://127.0.0.1:${port}`]) {
      codes.add(await problemOf(instance.sso.discover(issuer, callerAt(`192.0.2.${address++}`))));
    }
    expect([...codes]).toEqual(["invalidRequest"]);
    expect([connectionCount, connectAttempts]).toEqual([0, []]);
  });

  test("when a configuration is tested or saved", async () => {
    const instance = deployment.start({ resolve });
    const client = { oidcClientId: "c", oidcClientSecret: "s" };
    for (const oidcIssuer of [...issuers(), `http://127.0.0.1:${port}`]) {
      const testResult = await instance.sso.test({ oidcIssuer, ...client }, ADMINISTRATOR, ORIGIN).then(
        ({ success }) => success,
        (error: { code: string }) => error.code,
      );
      expect([false, "invalidRequest"]).toContain(testResult);
      const save = instance.sso.configure({ isEnabled: true, oidcIssuer, ...client }, undefined, ADMINISTRATOR, ORIGIN);
      expect(await problemOf(save)).toBe("invalidRequest");
    }
    expect([connectionCount, connectAttempts]).toEqual([0, []]);

    // With the same address as a configured host the service connects, so the recording above works.
    const instanceWithHost = deployment.start({ resolve, config: { PRIVATE_TARGET_HOSTS: [`127.0.0.1:${port}`] } });
    await instanceWithHost.sso.test({ oidcIssuer: `http://127.0.0.1:${port}`, ...client }, ADMINISTRATOR, ORIGIN);
    expect([connectionCount, connectAttempts]).toEqual([1, [`127.0.0.1:${port}`]]);
  });

  test("over plain HTTP, if the service's own address is not on this machine", async () => {
    const { issuer: oidcIssuer } = deployments.cloud.oidc;
    const testWith = (instance: Instance) => problemOf(instance.sso.test({ oidcIssuer }, ADMINISTRATOR, ORIGIN));
    // The provider of the tests has an http address on this machine. Only a service on this machine may use it.
    expect(await testWith(deployment.start())).toBe("none");
    const config = { PUBLIC_BASE_URL: "https://lifecycle.acme.example" };
    expect(await testWith(deployment.start({ config }))).toBe("invalidRequest");
    expect(await testWith(deployment.start({ config: { PUBLIC_BASE_URL: undefined } }))).toBe("invalidRequest");
  });
});

describe("reading a discovery document", () => {
  test("is limited to ten times a minute per caller's address", async () => {
    const instance = deployment.start({ resolve });
    const codes: string[] = [];
    for (let call = 0; call < 11; call++)
      codes.push(await problemOf(instance.sso.discover("https://127.0.0.1", CALLER)));
    expect(codes).toEqual([...Array.from({ length: 10 }, () => "invalidRequest"), "rateLimited"]);
    expect(await problemOf(instance.sso.discover("https://127.0.0.1", callerAt("192.0.2.77")))).toBe("invalidRequest");
  });

  test("returns the same error for a missing, private or malformed address", async () => {
    const instance = deployment.start({ resolve });
    const failureMessage = (issuer: string) =>
      instance.sso.discover(issuer, CALLER).then(
        () => "",
        (error: Error) => error.message,
      );
    const [privateMessage, missingMessage] = [
      await failureMessage("https://private.example"),
      await failureMessage("https://no.such.name.invalid"),
    ];
    expect(privateMessage).toBe(missingMessage);
    expect(privateMessage).not.toContain("10.0.0.1");
  });
});
