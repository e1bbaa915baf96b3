import { Link } from "@fluentui/react-components";
import { useState } from "react";
import type { Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { kindOf } from "../../parts/dependency-texts.ts";
import { CheckField, ChoiceField, NumberField, SecretField } from "../../parts/fields.tsx";
import { given, typed } from "../../parts/form-dialog.tsx";
import { isolated } from "../../parts/isolated.ts";
import { Operate } from "../../parts/operate.tsx";
import { RotationPlan } from "../../parts/rotation-plan.tsx";

type Radius = Schemas["BlastRadius"];

const VALUES = {
  application: "New client secret of the application in Entra",
  given: "Enter a value",
  made: "Generate a random value",
} as const;
const ALPHABETS = ["alphanumeric", "hex", "base64url", "symbols"] as const;

/** Rotates the asset and updates its consumers. The plan must be shown first. */
export function Rotate({ radius: { secret, consumers: all } }: { radius: Radius }) {
  // A rotation updates only consumers that reference the asset, not those that merely have access.
  const consumers = all.filter(({ strength }) => strength === "references");
  if (!isRotatable(secret)) return null;
  const bodyOf = (form: FormData, dryRun: boolean) => {
    const included = form.getAll("consumer").map(String);
    const updatable = new Set(consumers.map(({ resource }) => resource.id));
    return {
      params: { path: { secret_id: secret } },
      body: {
        ...newValueOf(form),
        ...given({ expiryDays: Number(typed(form, "expiryDays")) || null }),
        ...(included.length < updatable.size && { includeResources: included }),
        restartApps: form.has("restartApps"),
        skipVerification: form.has("skipVerification"),
        dryRun,
      },
    };
  };
  return (
    <div>
      <Operate
        operation="rotateAsset"
        title="Rotate secret"
        about={secret}
        action="Rotate secret"
        preview={{
          action: "Show plan",
          first: true,
          load: async (form, rotate) => <RotationPlan of={await rotate(bodyOf(form, true))} />,
        }}
        submit={async (form, rotate) => {
          const { rotationId } = await rotate(bodyOf(form, false));
          return <Link href={createHref(`/rotation/${rotationId}`, {})}>Rotation started. View its steps.</Link>;
        }}
      >
        <Value />
        <NumberField
          name="expiryDays"
          label="Validity (days)"
          hint="Leave empty to use the default in Settings"
          min={1}
          max={730}
        />
        <Consumers consumers={consumers} />
        <CheckField name="restartApps" label="Restart apps that read the secret only at startup" defaultChecked />
        <CheckField name="skipVerification" label="Skip verification that consumers use the new value" />
      </Operate>
    </div>
  );
}

/** Only secrets have a value to replace. Ids are `<vault>.<type>.<name>` and `entra.<tenant>.<app>.<key>`. */
const isRotatable = (id: string): boolean => id.startsWith("entra.") || id.split(".")[1] === "secret";

function Value() {
  const [how, setHow] = useState<keyof typeof VALUES>("application");
  return (
    <>
      <ChoiceField name="value" label="New value" options={VALUES} value={how} choose={setHow} />
      {how === "given" && <SecretField name="newValue" label="Value" hint="Never shown or logged" required />}
      {how === "made" && (
        <>
          <NumberField name="length" label="Length (characters)" required min={8} max={4096} defaultValue="32" />
          <ChoiceField name="alphabet" label="Alphabet" options={ALPHABETS} />
          <CheckField name="issuerAccepts" label="No other system needs to know the value in advance" required />
        </>
      )}
    </>
  );
}

function newValueOf(form: FormData) {
  const how = typed(form, "value");
  if (how === "given") return { newValue: String(form.get("newValue")) };
  if (how !== "made") return {};
  return {
    generate: { length: Number(typed(form, "length")), alphabet: typed(form, "alphabet") },
    issuerAccepts: form.has("issuerAccepts"),
  };
}

/** The consumers to update. The service still checks excluded consumers before it removes the old value. */
function Consumers({ consumers }: Pick<Radius, "consumers">) {
  const resources = new Map(consumers.map(({ resource }) => [resource.id, resource]));
  return [...resources.values()].map((one) => (
    <CheckField
      key={one.id}
      name="consumer"
      value={one.id}
      label={`Update ${isolated(one.name)} (${kindOf(one)})`}
      defaultChecked
    />
  ));
}
