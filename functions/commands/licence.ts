/**
 * Makes what licences are signed with, and licences:
 *
 *   npm run --silent licence -- keys --out FILE [--kid NAME]
 *   npm run --silent licence -- issue --key FILE --tier core|pro --customer NAME --days N [--tenant GUID]
 *
 * `keys` writes the private key to FILE and prints the public half as it goes into `shared/licensing/vendor-keys.ts`, or
 * into the build argument for development. `issue` prints the licence, which goes into LICENSE_KEY.
 */
import { generateKeyPairSync } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { CompactSign, importJWK } from "jose";
import * as z from "zod";
import { wordsOf } from "../../shared/invalid.ts";
import { DAY_SECONDS } from "../../shared/time.ts";

const USAGE = `Usage: npm run --silent licence -- keys --out FILE [--kid NAME]
       npm run --silent licence -- issue --key FILE --tier core|pro --customer NAME --days N [--tenant GUID]`;

/** A private key file: a JSON Web Key (RFC 8037) with its name. */
const PrivateKey = z.object({
  kty: z.literal("OKP"),
  crv: z.literal("Ed25519"),
  kid: z.string().min(1),
  x: z.string(),
  d: z.string(),
});

const NewLicense = z.object({
  key: z.string("names the private key file").min(1),
  tier: z.enum(["core", "pro"], "is core or pro"),
  customer: z.string("says who it is for").min(1).max(200),
  days: z.coerce.number("is 1 to 3650").int().min(1).max(3650),
  tenant: z.guid("is a GUID").optional(),
});

async function makeKeys(out: string, kid: string): Promise<void> {
  const jwk = generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" });
  const key = PrivateKey.parse({ ...jwk, kid });
  // Never over a file that is there: it may hold the key of licences in use.
  await writeFile(out, `${JSON.stringify(key, null, 2)}\n`, { mode: 0o600, flag: "wx" });
  console.error(`The private key is in ${out}: keep it secret and out of the repository. Its public half:`);
  console.log(JSON.stringify({ kid: key.kid, x: key.x }));
}

async function issue(wanted: z.infer<typeof NewLicense>): Promise<void> {
  const key = PrivateKey.parse(JSON.parse(await readFile(wanted.key, "utf8")));
  const iat = Math.floor(Date.now() / 1000);
  const claims = {
    tier: wanted.tier,
    customer: wanted.customer,
    iat,
    exp: iat + wanted.days * DAY_SECONDS,
    ...(wanted.tenant && { tenantId: wanted.tenant }),
  };
  const signer = new CompactSign(new TextEncoder().encode(JSON.stringify(claims)));
  signer.setProtectedHeader({ alg: "EdDSA", kid: key.kid });
  console.log(await signer.sign(await importJWK(key, "EdDSA")));
}

async function run(): Promise<void> {
  const option = { type: "string" } as const;
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: {
      out: option,
      kid: option,
      key: option,
      tier: option,
      customer: option,
      days: option,
      tenant: option,
    },
  });
  const [command] = positionals;
  if (command === "keys" && values.out !== undefined) {
    return await makeKeys(values.out, values.kid ?? `key-${new Date().toISOString().slice(0, 10)}`);
  }
  if (command !== "issue") throw new UsageError("Say keys (with --out) or issue.");
  const wanted = NewLicense.safeParse(values, { error: wordsOf });
  if (!wanted.success) {
    throw new UsageError(
      wanted.error.issues.map((problem) => `--${problem.path.join(".")} ${problem.message}`).join("\n"),
    );
  }
  await issue(wanted.data);
}

class UsageError extends Error {}

try {
  await run();
} catch (error) {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  const usage = error instanceof UsageError || code.startsWith("ERR_PARSE_ARGS");
  if (!(error instanceof Error && (usage || code === "EEXIST" || code === "ENOENT"))) throw error;
  console.error(usage ? `${error.message}\n${USAGE}` : error.message);
  process.exitCode = 1;
}
