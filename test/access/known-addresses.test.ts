import { setTimeout as delay } from "node:timers/promises";
import { beforeEach, describe, expect, test } from "vitest";
import { startTableProxy } from "../support/table-proxy.ts";
import {
  ADMIN,
  authenticateToken,
  CALLER,
  callerAt,
  type Deployment,
  deriveQuickly,
  type Instance,
  MINUTES,
  passwords,
  SECONDS,
  signingKey,
  useDeployments,
} from "./instances.ts";

// Tests of known addresses: IP addresses from which a user has recently signed in. During an attack on a username, sign-ins of
// the user from a known address are served first and are not delayed by the attacker's failures.

const nextDeployment = useDeployments();
let deployment: Deployment;
let instance: Instance;

beforeEach(async () => {
  deployment = nextDeployment();
  instance = deployment.start();
});

const DAYS = 24 * 60 * MINUTES;
const WRONG_PASSWORD = { ...ADMIN, password: "wrong password" };
const unknownAddress = (index: number) => callerAt(`203.0.113.${index}`);
/** Returns "signedIn", or the code of the problem with which a sign-in is rejected. */
const outcomeOf = (signIn: Promise<unknown>): Promise<string> =>
  signIn.then(
    () => "signedIn",
    (error: { code: string }) => error.code,
  );

/** Signs in with wrong passwords from many addresses, until sign-ins from unknown addresses are delayed. */
async function attackUsername(username = ADMIN.username): Promise<void> {
  for (let address = 0; address < 12; address++) {
    // Longer than the first delay (2 seconds), so that each attempt counts as a failure.
    deployment.clock.pass(5 * SECONDS);
    await outcomeOf(instance.access.signIn({ username, password: "wrong" }, unknownAddress(address)));
  }
  expect(await outcomeOf(instance.access.signIn({ ...ADMIN, username }, unknownAddress(200)))).toBe("tooManyAttempts");
}

describe("a user who recently signed in from an address", () => {
  test("is served next from this address while sign-ins from unknown addresses wait", async () => {
    await instance.access.signIn(ADMIN, CALLER);
    const verifiedPasswords: string[] = [];
    let release = () => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    const proxy = await startTableProxy(deployment.connectionString);
    const busyInstance = deployment.start({
      connectionString: proxy.connectionString,
      derive: async (password, salt, parameters) => {
        verifiedPasswords.push(password);
        if (verifiedPasswords.length === 1) await released;
        return await deriveQuickly(password, salt, parameters);
      },
    });
    const unknownSignIns = Array.from({ length: 9 }, (_, index) =>
      outcomeOf(
        busyInstance.access.signIn(
          { username: `nobody${index}`, password: `unknown user ${index}` },
          unknownAddress(index),
        ),
      ),
    );
    const fromOtherAddress = outcomeOf(
      busyInstance.access.signIn({ ...ADMIN, password: "from elsewhere" }, unknownAddress(99)),
    );
    /** Waits until the rows of this number of users have been requested and each request is in the queue. */
    const waitForArrival = async (count: number) => {
      const userReads = () => proxy.requests.filter(({ path }) => /^Users\(.*'(nobody|admin)/.test(path)).length;
      await expect.poll(userReads, { timeout: 150_000 }).toBe(count);
      // Lets the event loop run often, so that each request whose user was read has joined the queue.
      for (let iteration = 0; iteration < 30; iteration++) await delay(3);
    };
    await waitForArrival(10);
    const signedIn = busyInstance.access.signIn(ADMIN, CALLER);
    await waitForArrival(11);
    release();
    await signedIn;
    expect(verifiedPasswords.indexOf(ADMIN.password)).toBe(1);
    expect(await Promise.all([...unknownSignIns, fromOtherAddress])).toEqual(
      Array.from({ length: 10 }, () => "invalidCredentials"),
    );
    // The username alone gives no priority: the administrator's request from another address waited like other requests.
    expect(verifiedPasswords.indexOf("from elsewhere")).toBeGreaterThan(1);
    await proxy.stop();
  });

  test("does not wait behind unknown users whose rows are being read, if this instance served the earlier sign-in", async () => {
    const proxy = await startTableProxy(deployment.connectionString);
    const busyInstance = deployment.start({ connectionString: proxy.connectionString });
    await busyInstance.access.signIn(ADMIN, CALLER);
    let release = () => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    let userReads = 0;
    const readsUnknownUser = ({ path }: { path: string }) => /^Users\(.*'nobody/.test(path);
    for (let signIn = 0; signIn < 20; signIn++) {
      proxy.before(async () => {
        userReads += 1;
        await released;
      }, readsUnknownUser);
    }
    const unknownSignIns = Array.from({ length: 20 }, (_, index) =>
      outcomeOf(busyInstance.access.signIn({ username: `nobody${index}`, password: "wrong" }, unknownAddress(index))),
    );
    await expect.poll(() => userReads, { timeout: 150_000 }).toBe(4);
    expect(await outcomeOf(busyInstance.access.signIn(ADMIN, CALLER))).toBe("signedIn");
    expect([
      busyInstance.access.recentAddresses.has(CALLER.address!),
      busyInstance.access.recentAddresses.has(unknownAddress(0).address!),
    ]).toEqual([true, false]);
    // Still four reads at a time, so the other unknown users were waiting while the administrator signed in.
    expect(userReads).toBe(4);
    release();
    await Promise.all(unknownSignIns);
    await proxy.stop();
  });

  test("is not delayed at this address by failures at unknown addresses or by the rate limit", async () => {
    const limitedInstance = deployment.start({ limits: { perMinute: 3, perHour: 0 } });
    await limitedInstance.access.signIn(ADMIN, CALLER);
    await attackUsername();
    for (let time = 0; time < 5; time++)
      expect(await outcomeOf(limitedInstance.access.signIn(ADMIN, CALLER))).toBe("signedIn");
    expect(await outcomeOf(instance.access.signIn(ADMIN, callerAt("198.51.100.9")))).toBe("tooManyAttempts");
  });

  test("is blocked there after five failures, and the address is no longer known", async () => {
    await instance.access.signIn(ADMIN, CALLER);
    for (let time = 0; time < 5; time++) {
      expect(await outcomeOf(instance.access.signIn(WRONG_PASSWORD, CALLER))).toBe("invalidCredentials");
    }
    expect(await outcomeOf(instance.access.signIn(ADMIN, CALLER))).toBe("tooManyAttempts");
    deployment.clock.pass(15 * MINUTES);
    await attackUsername();
    expect(await outcomeOf(instance.access.signIn(ADMIN, CALLER))).toBe("tooManyAttempts");
  });

  test("has no priority at other addresses or at an address that could not be determined", async () => {
    await instance.access.signIn(ADMIN, callerAt("unknown"));
    await instance.access.signIn(ADMIN, { actor: "anonymous", requestId: "test" });
    await instance.access.signIn(ADMIN, CALLER);
    await attackUsername();
    for (const address of ["unknown", "192.0.2.2", "", "192.0.2.1 "]) {
      expect(await outcomeOf(instance.access.signIn(ADMIN, callerAt(address)))).toBe("tooManyAttempts");
    }
    expect(await outcomeOf(instance.access.signIn(ADMIN, CALLER))).toBe("signedIn");
  });

  test("makes the address known only for that user", async () => {
    await instance.access.users.create({ username: "maria", password: "a long enough password", role: "user" }, CALLER);
    await instance.access.signIn({ username: "maria", password: "a long enough password" }, CALLER);
    await attackUsername();
    expect(await outcomeOf(instance.access.signIn(ADMIN, CALLER))).toBe("tooManyAttempts");
  });

  test("loses the known address after 30 days, or after sign-ins from ten other addresses", async () => {
    await instance.access.signIn(ADMIN, CALLER);
    for (let address = 1; address <= 10; address++)
      await instance.access.signIn(ADMIN, callerAt(`198.51.100.${address}`));
    await attackUsername();
    expect(await outcomeOf(instance.access.signIn(ADMIN, CALLER))).toBe("tooManyAttempts");
    expect(await outcomeOf(instance.access.signIn(ADMIN, callerAt("198.51.100.1")))).toBe("signedIn");
    deployment.clock.pass(31 * DAYS);
    await instance.access.signIn(ADMIN, callerAt("198.51.100.2"));
    await attackUsername();
    expect(await outcomeOf(instance.access.signIn(ADMIN, callerAt("198.51.100.1")))).toBe("tooManyAttempts");
  });

  test("keeps the known address when a new signing key is added and the old key is removed after the next sign-in", async () => {
    await instance.access.signIn(ADMIN, CALLER);
    const keys = [signingKey("next"), ...deployment.config.JWT_SIGNING_KEYS];
    instance = deployment.start({ config: { JWT_SIGNING_KEYS: keys } });
    await attackUsername();
    expect(await outcomeOf(instance.access.signIn(ADMIN, CALLER))).toBe("signedIn");
    instance = deployment.start({ config: { JWT_SIGNING_KEYS: keys.slice(0, 1) } });
    expect(await outcomeOf(instance.access.signIn(ADMIN, CALLER))).toBe("signedIn");
  });

  test("keeps only the current address after changing the password, and no address after a password reset", async () => {
    const newPassword = "another horse battery";
    await instance.access.signIn(ADMIN, callerAt("198.51.100.1"));
    const { access_token } = await instance.access.signIn(ADMIN, CALLER);
    const authenticated = await authenticateToken(instance, access_token);
    if (authenticated.kind !== "valid") throw new Error("The token is not valid.");
    await instance.access.changePassword(authenticated.actor, passwords(ADMIN.password, newPassword), CALLER);
    await attackUsername();
    expect(await outcomeOf(instance.access.signIn({ ...ADMIN, password: newPassword }, callerAt("198.51.100.1")))).toBe(
      "tooManyAttempts",
    );
    expect(await outcomeOf(instance.access.signIn({ ...ADMIN, password: newPassword }, CALLER))).toBe("signedIn");
    await instance.access.users.update("admin", { password: "a third horse battery" }, undefined, CALLER);
    expect(await outcomeOf(instance.access.signIn({ ...ADMIN, password: "a third horse battery" }, CALLER))).toBe(
      "tooManyAttempts",
    );
  });
});

test("storage requests for an unknown address don't reveal whether a username exists", async () => {
  await instance.access.signIn(ADMIN, CALLER);
  const proxy = await startTableProxy(deployment.connectionString);
  try {
    const { access } = deployment.start({
      connectionString: proxy.connectionString,
      // A limit that is not reached, so that the requests of the rate limiter are compared too.
      limits: { perMinute: 9, perHour: 0 },
    });
    const requestsOfSignIn = async (username: string, address: number) => {
      proxy.requests.length = 0;
      expect(await outcomeOf(access.signIn({ username, password: "wrong" }, unknownAddress(address)))).toBe(
        "invalidCredentials",
      );
      return proxy.requests.map(({ method, path, status }) => `${method} ${path.replace(/[(].*/, "")} ${status}`);
    };
    await requestsOfSignIn("somebody", 0);
    const [requestsOfExistingUser, requestsOfUnknownUser] = [
      await requestsOfSignIn(ADMIN.username, 1),
      await requestsOfSignIn("nobody", 2),
    ];
    // For an unknown user the row is not found (404), otherwise it is (200). All else must be equal.
    const ignoringUserStatus = (requests: string[]) =>
      requests.map((request) => request.replace("Users 404", "Users 200")).sort();
    expect(ignoringUserStatus(requestsOfUnknownUser)).toEqual(ignoringUserStatus(requestsOfExistingUser));
    expect(requestsOfExistingUser.length).toBeGreaterThan(5);
  } finally {
    await proxy.stop();
  }
});

test("a sign-in recreates the bootstrap administrator after storage was emptied under a running process", async () => {
  const earlierSignIn = await instance.access.signIn(ADMIN, CALLER);
  await deployment.deleteAllRows();
  expect(await authenticateToken(instance, earlierSignIn.access_token)).toEqual({ kind: "invalid" });
  // Each process checks every ten seconds that the bootstrap administrator exists.
  deployment.clock.pass(11 * SECONDS);
  const laterSignIn = await instance.access.signIn(ADMIN, CALLER);
  expect(await authenticateToken(instance, laterSignIn.access_token)).toMatchObject({ kind: "valid" });
  expect((await deployment.auditEntries("user.bootstrapped")).length).toBeGreaterThan(0);
});
