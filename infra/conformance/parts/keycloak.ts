import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { ROOT } from "../cache.ts";
import type { Case } from "../case.ts";
import { javaOptions, unpackedFromMaven } from "../maven.ts";
import type { Part, PartCase } from "../part.ts";
import { PROGRAMS } from "../programs.ts";
import { freePort, startServer } from "../servers.ts";

// Single sign-on with Keycloak: runs the tests of test/sso/keycloak with a Keycloak of its own.

export const part: Part = {
  name: "keycloak",
  description: "sign-ins and sign-outs with Keycloak by OpenID Connect and SAML",
  programs: ["keycloak"],
  needs: ["java", "maven"],
  limits: [
    "The result of a rejected sign-in is the status of the page and the reason in the audit log, which the case looks up by the request id on the page.",
    "The connection test does not see that the standard flow is off or that the redirect URI is missing: Keycloak shows both only to browsers.",
    "Usernames have only letters from A to Z: `ü` becomes `u`, and `ß` becomes `ss`.",
    "**Backchannel logout session required** must be off if a person's sessions at Keycloak are ended all together. Keycloak 26.0.7 sends one logout token.",
    "With SAML, a session that an administrator ends at Keycloak continues here, because the logout message needs the person's browser.",
    "Sign-ins that Keycloak starts, the artifact binding and pushed authorization requests are not supported.",
  ],
  async *run() {
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    const { version } = PROGRAMS.keycloak;
    const folder = path.join(unpackedFromMaven(PROGRAMS.keycloak), `keycloak-${version}`);
    // Deletes the realms of an earlier run.
    rmSync(path.join(folder, "data"), { recursive: true, force: true });
    const command = ["bash", path.join(folder, "bin/kc.sh"), "start-dev", "--http-host=127.0.0.1"] as const;
    const stopKeycloak = await startServer(
      command,
      {
        KC_BOOTSTRAP_ADMIN_USERNAME: "admin",
        KC_BOOTSTRAP_ADMIN_PASSWORD: "admin",
        KC_HTTP_PORT: String(port),
        JAVA_OPTS_APPEND: javaOptions(),
      },
      async () => {
        if (!(await fetch(`${url}/realms/master`)).ok) throw new Error("The realm master is not there yet.");
      },
    );
    try {
      yield* runTests(url);
    } finally {
      await stopKeycloak();
    }
  },
};

/** Runs the tests in a process of their own, and yields their cases at the end of each protocol. */
async function* runTests(keycloakUrl: string): AsyncGenerator<PartCase> {
  for (const [protocol, file] of [
    ["OIDC", "test/sso/keycloak/oidc.test.ts"],
    ["SAML", "test/sso/keycloak/saml.test.ts"],
  ] as const) {
    const cases = path.join(mkdtempSync(path.join(tmpdir(), "keycloak-")), "cases.jsonl");
    const child = spawn(process.execPath, ["node_modules/vitest/vitest.mjs", "run", file], {
      cwd: ROOT,
      // Without CAMPAIGN, Vitest leaves these files out (vitest.config.ts).
      env: {
        ...process.env,
        CAMPAIGN: "all",
        KEYCLOAK_URL: keycloakUrl,
        CONFORMANCE_CASES: cases,
        TEST_APP_IS_BUILT: "true",
      },
      stdio: ["ignore", "ignore", "pipe"],
    });
    let errors = "";
    child.stderr.on("data", (data) => (errors += data));
    const [code] = await once(child, "close");
    const lines = existsSync(cases) ? readFileSync(cases, "utf8").trim().split("\n") : [];
    const finishedCases = lines.map((line) => JSON.parse(line) as Case);
    for (const one of finishedCases) yield { program: "keycloak", ...one, name: `${protocol}: ${one.name}` };
    // The tests failed outside of a case, or did not start.
    if (code !== 0 && finishedCases.every(({ passed }) => passed))
      yield {
        program: "keycloak",
        name: `${protocol}: the tests run to their end`,
        expected: "0",
        seen: `${code} ${errors.slice(-2_000)}`,
        passed: false,
      };
  }
}
