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
const stranger = (index: number) => from(`203.0.113.${index}`);
const code = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => "in",
    (error: { code: string }) => error.code,
  );

/** Fails for the username from so many addresses that strangers must wait. */
async function attacked(username = ADMIN.username): Promise<void> {
  for (let address = 0; address < 12; address++) {
    deployment.clock.pass(5 * SECONDS);
    await code(instance.access.signIn({ username, password: "wrong" }, stranger(address)));
  }
  expect(await code(instance.access.signIn({ ...ADMIN, username }, stranger(200)))).toBe("tooManyAttempts");
}

describe("a user who signed in from an address lately", () => {
  test("is served next there, while strangers wait, on every instance", async () => {
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
    const strangers = Array.from({ length: 9 }, (_, index) =>
      code(busy.access.signIn({ username: `nobody${index}`, password: `stranger ${index}` }, stranger(index))),
    );
    const elsewhere = code(busy.access.signIn({ ...ADMIN, password: "from elsewhere" }, stranger(99)));
    /** When so many were looked up, they stand in line, but for the one who is served. */
    const arrived = async (count: number) => {
      const looked = () => proxy.requests.filter(({ path }) => /^Users\(.*'(nobody|admin)/.test(path)).length;
      await expect.poll(looked, { timeout: 150_000 }).toBe(count);
      // Turns of this process, not a time: what has come in is worked off, however long it stood still.
      for (let turn = 0; turn < 30; turn++) await delay(3);
    };
    await arrived(10);
    const signedIn = busy.access.signIn(ADMIN, HERE);
    await arrived(11);
    release();
    await signedIn;
    expect(order.indexOf(ADMIN.password)).toBe(1);
    expect(await Promise.all([...strangers, elsewhere])).toEqual(
      Array.from({ length: 10 }, () => "invalidCredentials"),
    );
    // The username itself makes nobody known: from elsewhere it waited like any other.
    expect(order.indexOf("from elsewhere")).toBeGreaterThan(1);
    await proxy.stop();
  });

  test("is not behind the strangers who wait to be looked up, on an instance that let them in from there", async () => {
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
    const strangers = Array.from({ length: 20 }, (_, index) =>
      code(busy.access.signIn({ username: `nobody${index}`, password: "wrong" }, stranger(index))),
    );
    await expect.poll(() => looked, { timeout: 150_000 }).toBe(4);
    expect(await code(busy.access.signIn(ADMIN, HERE))).toBe("in");
    expect([busy.access.letIn.has(HERE.address!), busy.access.letIn.has(stranger(0).address!)]).toEqual([true, false]);
    // No more of them were looked up meanwhile: the line was there.
    expect(looked).toBe(4);
    release();
    await Promise.all(strangers);
    await proxy.stop();
  });

  test("does not wait there for what strangers failed at, nor for how often they tried", async () => {
    const limited = deployment.start({ limits: { perMinute: 3, perHour: 0 } });
    await limited.access.signIn(ADMIN, HERE);
    await attacked();
    for (let time = 0; time < 5; time++) expect(await code(limited.access.signIn(ADMIN, HERE))).toBe("in");
    expect(await code(instance.access.signIn(ADMIN, from("198.51.100.9")))).toBe("tooManyAttempts");
  });

  test("still waits there after five failures of their own, and is a stranger from then on", async () => {
    await instance.access.signIn(ADMIN, HERE);
    for (let time = 0; time < 5; time++) {
      expect(await code(instance.access.signIn(WRONG, HERE))).toBe("invalidCredentials");
    }
    expect(await code(instance.access.signIn(ADMIN, HERE))).toBe("tooManyAttempts");
    deployment.clock.pass(15 * MINUTES);
    await attacked();
    expect(await code(instance.access.signIn(ADMIN, HERE))).toBe("tooManyAttempts");
  });

  test("is a stranger at every other address, and at one that could not be told", async () => {
    await instance.access.signIn(ADMIN, from("unknown"));
    await instance.access.signIn(ADMIN, { actor: "anonymous", requestId: "test" });
    await instance.access.signIn(ADMIN, HERE);
    await attacked();
    for (const address of ["unknown", "192.0.2.2", "", "192.0.2.1 "]) {
      expect(await code(instance.access.signIn(ADMIN, from(address)))).toBe("tooManyAttempts");
    }
    expect(await code(instance.access.signIn(ADMIN, HERE))).toBe("in");
  });

  test("makes no other user known there", async () => {
    await instance.access.users.create({ username: "maria", password: "a long enough password", role: "user" }, HERE);
    await instance.access.signIn({ username: "maria", password: "a long enough password" }, HERE);
    await attacked();
    expect(await code(instance.access.signIn(ADMIN, HERE))).toBe("tooManyAttempts");
  });

  test("is forgotten there after 30 days, and when ten other addresses came since", async () => {
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

  test("is known there under a new first key, as long as the old one is in the list", async () => {
    await instance.access.signIn(ADMIN, HERE);
    const keys = [signingKey("next"), ...deployment.config.JWT_SIGNING_KEYS];
    instance = deployment.start({ config: { JWT_SIGNING_KEYS: keys } });
    await attacked();
    expect(await code(instance.access.signIn(ADMIN, HERE))).toBe("in");
    instance = deployment.start({ config: { JWT_SIGNING_KEYS: keys.slice(0, 1) } });
    expect(await code(instance.access.signIn(ADMIN, HERE))).toBe("in");
  });

  test("is a stranger everywhere after a reset of the password, and everywhere but here after changing it", async () => {
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

test("whether a username exists can't be told by what is asked of storage for a stranger", async () => {
  await instance.access.signIn(ADMIN, HERE);
  const proxy = await startTableProxy(deployment.connectionString);
  try {
    const { access } = deployment.start({
      connectionString: proxy.connectionString,
      limits: { perMinute: 9, perHour: 0 },
    });
    const asked = async (username: string, address: number) => {
      proxy.requests.length = 0;
      expect(await code(access.signIn({ username, password: "wrong" }, stranger(address)))).toBe("invalidCredentials");
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

test("storage that is emptied under a running process is recovered from by signing in again", async () => {
  const before = await instance.access.signIn(ADMIN, HERE);
  await deployment.empty();
  expect(await whoIs(instance, before.access_token)).toEqual({ kind: "invalid" });
  deployment.clock.pass(11 * SECONDS);
  const after = await instance.access.signIn(ADMIN, HERE);
  expect(await whoIs(instance, after.access_token)).toMatchObject({ kind: "valid" });
  expect((await deployment.entries("user.bootstrapped")).length).toBeGreaterThan(0);
});
