/** A command for the vendor that creates license signing keys and licenses. See HELP. */
import { generateKeyPairSync } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { CompactSign, importJWK } from "jose";
import * as z from "zod";
import { commandLine, exitWithUsageError } from "../../infra/build/command-line.ts";
import { DAY_SECONDS } from "../../shared/platform/time.ts";
import { validationMessage } from "../../shared/platform/validation-message.ts";

const HELP = `npm run --silent licence -- keys --out FILE [--kid NAME]
npm run --silent licence -- issue --key FILE --tier core|pro --customer NAME --days N [--tenant GUID]

keys    writes a private key to a new file and prints its public key, for shared/licensing/vendor-keys.ts or for the
        build argument of development builds
issue   prints a license, for LICENSE_KEY

  --out FILE        file for the private key; an existing file is not overwritten
  --kid NAME        ID of the key (default: key- and the date)
  --key FILE        private key that signs the license
  --tier TIER       core or pro
  --customer NAME   name of the customer
  --days N          validity in days, 1 to 3650
  --tenant GUID     the only Entra tenant in which the license is valid`;

/** A private key file: a JSON Web Key (RFC 8037) with the ID of the key. */
const PrivateKey = z.object({
  kty: z.literal("OKP"),
  crv: z.literal("Ed25519"),
  kid: z.string().min(1),
  x: z.string(),
  d: z.string(),
});

const LicenseOptions = z.object({
  key: z.string("must name the private key file").min(1),
  tier: z.enum(["core", "pro"], "must be core or pro"),
  customer: z.string("must name the customer").min(1).max(200),
  days: z.coerce.number("must be 1 to 3650").int().min(1).max(3650),
  tenant: z.guid("must be a GUID").optional(),
});

async function createKeys(out: string, kid: string): Promise<void> {
  const jwk = generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" });
  const key = PrivateKey.parse({ ...jwk, kid });
  // Never overwrites a file, because it can contain the key of licenses in use.
  await writeFile(out, `${JSON.stringify(key, null, 2)}\n`, { mode: 0o600, flag: "wx" });
  console.error(`Wrote the private key to ${out}. Keep it secret and out of the repository. Its public key:`);
  console.log(JSON.stringify({ kid: key.kid, x: key.x }));
}

/** Reads a private key. Parser errors are not shown, because they can quote a part of the key. */
async function readKey(file: string): Promise<{ kid: string; key: Awaited<ReturnType<typeof importJWK>> }> {
  const text = await readFile(file, "utf8");
  try {
    const { kid, ...jwk } = PrivateKey.parse(JSON.parse(text));
    return { kid, key: await importJWK(jwk, "EdDSA") };
  } catch {
    return exitWithUsageError(`${file} is not a private key file of the command \`keys\``);
  }
}

/** Prints a license that is signed with the key in the file. */
async function issue(options: z.infer<typeof LicenseOptions>): Promise<void> {
  const { kid, key } = await readKey(options.key);
  const iat = Math.floor(Date.now() / 1000);
  const claims = {
    tier: options.tier,
    customer: options.customer,
    iat,
    exp: iat + options.days * DAY_SECONDS,
    ...(options.tenant && { tenantId: options.tenant }),
  };
  const signer = new CompactSign(new TextEncoder().encode(JSON.stringify(claims)));
  signer.setProtectedHeader({ alg: "EdDSA", kid });
  console.log(await signer.sign(key));
}

async function run(): Promise<void> {
  const option = { type: "string" } as const;
  const { positionals, values } = commandLine(HELP, {
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
  const [command, ...extraArguments] = positionals;
  if (command === "keys" && extraArguments.length === 0) {
    const out = values.out ?? exitWithUsageError("--out is missing");
    return await createKeys(out, values.kid ?? `key-${new Date().toISOString().slice(0, 10)}`);
  }
  if (command !== "issue" || extraArguments.length > 0) exitWithUsageError("The command must be keys or issue");
  const options = LicenseOptions.safeParse(values, { error: validationMessage });
  if (!options.success) {
    exitWithUsageError(
      options.error.issues.map((problem) => `--${problem.path.join(".")} ${problem.message}`).join("; "),
    );
  }
  await issue(options.data);
}

try {
  await run();
} catch (error) {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  if (!(error instanceof Error && ["EEXIST", "ENOENT"].includes(code))) throw error;
  console.error(error.message);
  process.exitCode = 1;
}
