import { setTimeout as delay } from "node:timers/promises";
import { beforeEach, describe, expect, test } from "vitest";
import { startTableProxy } from "../support/table-proxy.ts";
import {
  ADMIN,
  type Deployment,
  from,
  HERE,
  type Instance,
  MINUTES,
  passwords,
  quickly,
  SECONDS,
  signingKey,
  useDeployments,
  whoIs,
} from "./instances.ts";

const nextDeployment = useDeployments();
let deployment: Deployment;
let instance: Instance;

beforeEach(async () => {
  deployment = nextDeployment();
  instance = deployment.start();
});

const DAYS = 24 * 60 * MINUTES;
const WRONG = { ...ADMIN, password: "wrong password" };
const unknownAddress = (index: number) => from(`203.0.113.${index}`);
const code = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => "in",
    (error: { code: string }) => error.code,
  );

/** Fails for the username from many addresses, until unknown addresses must wait. */
async function attacked(username = ADMIN.username): Promise<void> {
  for (let address = 0; address < 12; address++) {
    deployment.clock.pass(5 * SECONDS);
    await code(instance.access.signIn({ username, password: "wrong" }, unknownAddress(address)));
  }
  expect(await code(instance.access.signIn({ ...ADMIN, username }, unknownAddress(200)))).toBe("tooManyAttempts");
}

describe("a user who recently signed in from an address", () => {
  test("is served next from there, on every instance, while unknown addresses wait", async () => {
    await instance.access.signIn(ADMIN, HERE);
    const order: string[] = [];
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    const proxy = await startTableProxy(deployment.connectionString);
    const busy = deployment.start({
      connectionString: proxy.connectionString,
      derive: async (password, salt, parameters) => {
        order.push(password);
        if (order.length === 1) await held;
        return await quickly(password, salt, parameters);
      },
    });
    const unknownSignIns = Array.from({ length: 9 }, (_, index) =>
      code(busy.access.signIn({ username: `nobody${index}`, password: `stranger ${index}` }, unknownAddress(index))),
    );
    const elsewhere = code(busy.access.signIn({ ...ADMIN, password: "from elsewhere" }, unknownAddress(99)));
    /** If this many users are being read, further requests wait. */
    const arrived = async (count: number) => {
      const looked = () => proxy.requests.filter(({ path }) => /^Users\(.*'(nobody|admin)/.test(path)).length;
      await expect.poll(looked, { timeout: 150_000 }).toBe(count);
      // Counts iterations of this process, not time: all pending work is done, however long the process paused.
      for (let turn = 0; turn < 30; turn++) await delay(3);
    };
    await arrived(10);
    const signedIn = busy.access.signIn(ADMIN, HERE);
    await arrived(11);
    release();
    await signedIn;
    expect(order.indexOf(ADMIN.password)).toBe(1);
    expect(await Promise.all([...unknownSignIns, elsewhere])).toEqual(
      Array.from({ length: 10 }, () => "invalidCredentials"),
    );
    // The username alone gives no priority: from elsewhere the request waited like any other.
    expect(order.indexOf("from elsewhere")).toBeGreaterThan(1);
    await proxy.stop();
  });

  test("does not wait behind requests whose users are read, on an instance with an earlier sign-in from there", async () => {
    const proxy = await startTableProxy(deployment.connectionString);
    const busy = deployment.start({ connectionString: proxy.connectionString });
    await busy.access.signIn(ADMIN, HERE);
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    let looked = 0;
    const isStrangers = ({ path }: { path: string }) => /^Users\(.*'nobody/.test(path);
    for (let one = 0; one < 20; one++) {
      proxy.before(async () => {
        looked += 1;
        await held;
      }, isStrangers);
    }
    const unknownSignIns = Array.from({ length: 20 }, (_, index) =>
      code(busy.access.signIn({ username: `nobody${index}`, password: "wrong" }, unknownAddress(index))),
    );
    await expect.poll(() => looked, { timeout: 150_000 }).toBe(4);
    expect(await code(busy.access.signIn(ADMIN, HERE))).toBe("in");
    expect([
      busy.access.recentAddresses.has(HERE.address!),
      busy.access.recentAddresses.has(unknownAddress(0).address!),
    ]).toEqual([true, false]);
    // No more users were read meanwhile, so the queue existed.
    expect(looked).toBe(4);
    release();
    await Promise.all(unknownSignIns);
    await proxy.stop();
  });

  test("does not wait there for failures or sign-ins from unknown addresses", async () => {
    const limited = deployment.start({ limits: { perMinute: 3, perHour: 0 } });
    await limited.access.signIn(ADMIN, HERE);
    await attacked();
    for (let time = 0; time < 5; time++) expect(await code(limited.access.signIn(ADMIN, HERE))).toBe("in");
    expect(await code(instance.access.signIn(ADMIN, from("198.51.100.9")))).toBe("tooManyAttempts");
  });

  test("waits there after five failures of the user, and the address is unknown from then on", async () => {
    await instance.access.signIn(ADMIN, HERE);
    for (let time = 0; time < 5; time++) {
      expect(await code(instance.access.signIn(WRONG, HERE))).toBe("invalidCredentials");
    }
    expect(await code(instance.access.signIn(ADMIN, HERE))).toBe("tooManyAttempts");
    deployment.clock.pass(15 * MINUTES);
    await attacked();
    expect(await code(instance.access.signIn(ADMIN, HERE))).toBe("tooManyAttempts");
  });

  test("is unknown at every other address, and at one that could not be determined", async () => {
    await instance.access.signIn(ADMIN, from("unknown"));
    await instance.access.signIn(ADMIN, { actor: "anonymous", requestId: "test" });
    await instance.access.signIn(ADMIN, HERE);
    await attacked();
    for (const address of ["unknown", "192.0.2.2", "", "192.0.2.1 "]) {
      expect(await code(instance.access.signIn(ADMIN, from(address)))).toBe("tooManyAttempts");
    }
    expect(await code(instance.access.signIn(ADMIN, HERE))).toBe("in");
  });

  test("makes the address known for no other user", async () => {
    await instance.access.users.create({ username: "maria", password: "a long enough password", role: "user" }, HERE);
    await instance.access.signIn({ username: "maria", password: "a long enough password" }, HERE);
    await attacked();
    expect(await code(instance.access.signIn(ADMIN, HERE))).toBe("tooManyAttempts");
  });

  test("is unknown there after 30 days, and after sign-ins from ten other addresses", async () => {
    await instance.access.signIn(ADMIN, HERE);
    for (let address = 1; address <= 10; address++) await instance.access.signIn(ADMIN, from(`198.51.100.${address}`));
    await attacked();
    expect(await code(instance.access.signIn(ADMIN, HERE))).toBe("tooManyAttempts");
    expect(await code(instance.access.signIn(ADMIN, from("198.51.100.1")))).toBe("in");
    deployment.clock.pass(31 * DAYS);
    await instance.access.signIn(ADMIN, from("198.51.100.2"));
    await attacked();
    expect(await code(instance.access.signIn(ADMIN, from("198.51.100.1")))).toBe("tooManyAttempts");
  });

  test("is known there under a new first key, while the old key is in the list", async () => {
    await instance.access.signIn(ADMIN, HERE);
    const keys = [signingKey("next"), ...deployment.config.JWT_SIGNING_KEYS];
    instance = deployment.start({ config: { JWT_SIGNING_KEYS: keys } });
    await attacked();
    expect(await code(instance.access.signIn(ADMIN, HERE))).toBe("in");
    instance = deployment.start({ config: { JWT_SIGNING_KEYS: keys.slice(0, 1) } });
    expect(await code(instance.access.signIn(ADMIN, HERE))).toBe("in");
  });

  test("is unknown everywhere after a password reset, and everywhere but here after changing the password", async () => {
    const next = "another horse battery";
    await instance.access.signIn(ADMIN, from("198.51.100.1"));
    const { access_token } = await instance.access.signIn(ADMIN, HERE);
    const who = await whoIs(instance, access_token);
    if (who.kind !== "valid") throw new Error("The token does not hold.");
    await instance.access.changePassword(who.actor, passwords(ADMIN.password, next), HERE);
    await attacked();
    expect(await code(instance.access.signIn({ ...ADMIN, password: next }, from("198.51.100.1")))).toBe(
      "tooManyAttempts",
    );
    expect(await code(instance.access.signIn({ ...ADMIN, password: next }, HERE))).toBe("in");
    await instance.access.users.update("admin", { password: "a third horse battery" }, undefined, HERE);
    expect(await code(instance.access.signIn({ ...ADMIN, password: "a third horse battery" }, HERE))).toBe(
      "tooManyAttempts",
    );
  });
});

test("storage requests for an unknown address don't reveal whether a username exists", async () => {
  await instance.access.signIn(ADMIN, HERE);
  const proxy = await startTableProxy(deployment.connectionString);
  try {
    const { access } = deployment.start({
      connectionString: proxy.connectionString,
      limits: { perMinute: 9, perHour: 0 },
    });
    const asked = async (username: string, address: number) => {
      proxy.requests.length = 0;
      expect(await code(access.signIn({ username, password: "wrong" }, unknownAddress(address)))).toBe(
        "invalidCredentials",
      );
      return proxy.requests.map(({ method, path, status }) => `${method} ${path.replace(/[(].*/, "")} ${status}`);
    };
    await asked("somebody", 0);
    const [known, unknown] = [await asked(ADMIN.username, 1), await asked("nobody", 2)];
    const found = (requests: string[]) => requests.map((request) => request.replace("Users 404", "Users 200")).sort();
    expect(found(unknown)).toEqual(found(known));
    expect(known.length).toBeGreaterThan(5);
  } finally {
    await proxy.stop();
  }
});

test("a sign-in recreates the bootstrap administrator after storage was emptied under a running process", async () => {
  const before = await instance.access.signIn(ADMIN, HERE);
  await deployment.empty();
  expect(await whoIs(instance, before.access_token)).toEqual({ kind: "invalid" });
  deployment.clock.pass(11 * SECONDS);
  const after = await instance.access.signIn(ADMIN, HERE);
  expect(await whoIs(instance, after.access_token)).toMatchObject({ kind: "valid" });
  expect((await deployment.entries("user.bootstrapped")).length).toBeGreaterThan(0);
});
