import { describe, expect, test } from "vitest";
import { rejectWeakPassword } from "../../shared/access/password-policy.ts";
import { createPasswords, type Derive } from "../../shared/access/passwords.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";

const randomness = systemRandomness();

// Tests of the hashing of passwords with scrypt, and of the rejection of weak passwords.

/** Creates a hasher that counts derivations (computations of a hash) and their maximum concurrency. */
function createCountingPasswords() {
  const counts = { derived: 0, maxConcurrency: 0 };
  let concurrency = 0;
  const derive: Derive = async (password) => {
    counts.derived += 1;
    concurrency += 1;
    counts.maxConcurrency = Math.max(counts.maxConcurrency, concurrency);
    await new Promise((resolve) => setImmediate(resolve));
    concurrency -= 1;
    return Buffer.from(password.padEnd(32).slice(0, 32));
  };
  return { counts, passwords: createPasswords({ randomness, derive }) };
}

describe("passwords", () => {
  const scryptPasswords = createPasswords({ randomness });

  test("a hash contains scrypt's parameters and a random salt, and matches only its password", async () => {
    const [hash, hashOfSamePassword] = [
      await scryptPasswords.hash("correct horse battery"),
      await scryptPasswords.hash("correct horse battery"),
    ];
    expect(hash).toMatch(/^\$scrypt\$ln=14,r=8,p=5\$[\w+/]{22}\$[\w+/]{43}$/);
    expect(hashOfSamePassword).not.toBe(hash);
    expect(await scryptPasswords.verify("correct horse battery", hash)).toBe(true);
    expect(await scryptPasswords.verify("correct horse batterz", hash)).toBe(false);
    expect(await scryptPasswords.verify("correct horse battery", undefined)).toBe(false);
  });

  test("a password matches in any Unicode normalization form, because keyboards differ", async () => {
    const hash = await scryptPasswords.hash("Käsekuchen mit Sahne".normalize("NFC"));
    expect(await scryptPasswords.verify("Käsekuchen mit Sahne".normalize("NFD"), hash)).toBe(true);
  });

  test("verifying costs one derivation for an unknown user too, so that its duration reveals nothing", async () => {
    const { counts, passwords } = createCountingPasswords();
    const hash = await passwords.hash("correct horse battery");
    const derivedBefore = counts.derived;
    await passwords.verify("wrong", hash);
    expect(counts.derived - derivedBefore).toBe(1);
    await passwords.verify("wrong", undefined);
    expect(counts.derived - derivedBefore).toBe(2);
  });

  test("derivations run one at a time, and are rejected with Retry-After if the queue is full", async () => {
    const { counts, passwords } = createCountingPasswords();
    const results = await Promise.allSettled(Array.from({ length: 50 }, () => passwords.verify("wrong", undefined)));
    expect(counts.maxConcurrency).toBe(1);
    // One in progress and 32 that wait in the queue.
    expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(33);
    const rejections = results.flatMap((result) => (result.status === "rejected" ? [result.reason as Problem] : []));
    expect(rejections).toHaveLength(17);
    for (const problem of rejections) {
      expect(problem).toBeInstanceOf(Problem);
      expect([problem.status, problem.headers["Retry-After"]]).toEqual([429, "5"]);
    }
    expect(await passwords.verify("wrong", undefined)).toBe(false);
  });

  test("a failed derivation does not stop the next derivation", async () => {
    let isBroken = true;
    const derive: Derive = async () => {
      if (isBroken) throw new Error("out of memory");
      return new Uint8Array(32);
    };
    const passwords = createPasswords({ randomness, derive });
    await expect(passwords.hash("correct horse battery")).rejects.toThrow("out of memory");
    isBroken = false;
    await expect(passwords.hash("correct horse battery")).resolves.toContain("$scrypt$");
  });
});

test.each([
  ["zanzibarquill", undefined],
  ["ada", "zanzibarquill@acme.example"],
])("a variation of the user's name or mail address is a weak password: %s, %s", async (username, email) => {
  const rejection = rejectWeakPassword("zanzibarquill1", { username, email }, "password");
  await expect(rejection).rejects.toMatchObject({ code: "invalidRequest", errors: [{ path: "body.password" }] });
  await rejectWeakPassword("zanzibarquill1", { username: "ada", email: "ada@acme.example" }, "password");
});

// The suffix is no guessable one: after another word, it is accepted.
test.each(["credential4q!zk", "lifecycle4q!zk", "keyvault4q!zk", "service4q!zk"])(
  "a variation of a word from the service's domain is a weak password: %s",
  async (password) => {
    const rejection = rejectWeakPassword(password, { username: "ada" }, "newPassword");
    await expect(rejection).rejects.toMatchObject({ code: "invalidRequest", errors: [{ path: "body.newPassword" }] });
    await rejectWeakPassword(password.replace(/^[a-z]+/, "zanzibarquill"), { username: "ada" }, "newPassword");
  },
);

test.each([
  ["the service's name", "credential-lifecycle", "ada"],
  ["the service's name with digits for letters", "Cr3dent1al-Lifecycle!", "ada"],
  ["the service's name reversed", "elcycefil-laitnederc", "ada"],
  ["the service's word and a year", "KeyVault-2026-!!", "ada"],
  ["the username twice, with a sign", "h3user-h3user", "h3user"],
  ["the username with digits around it", "2026.maria.lopez!", "maria.lopez"],
  ["a part of the username with digits", "bob-1234-bob-5678", "bob.miller"],
  ["a season and a year", "Summer2026!!!", "ada"],
  ["a season between years", "2026-Winter-2027", "ada"],
  ["a month and a year", "March#2026#09", "ada"],
])("a password of %s is weak, and the message says what to choose: %s", async (_what, password, username) => {
  await expect(rejectWeakPassword(password, { username }, "password")).rejects.toMatchObject({
    code: "invalidRequest",
    message: expect.stringContaining("choose four or more unrelated words"),
    errors: [{ path: "body.password" }],
  });
});

test.each([
  ["seven green bicycles uphill", "ada"],
  ["a summer of 2026 without rain", "ada"],
  ["lifecycle of purple otters", "ada"],
  ["maria's password", "maria"],
  ["x7K!9qW2-vR4#", "ada"],
])("a password that has other words or signs beside guessable ones is accepted: %s", async (password, username) => {
  await expect(rejectWeakPassword(password, { username }, "password")).resolves.toBeUndefined();
});
