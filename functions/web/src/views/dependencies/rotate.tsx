import { Link } from "@fluentui/react-components";
import { useState } from "react";
import type { Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { kindOf } from "../../parts/dependency-words.ts";
import { CheckField, ChoiceField, NumberField, SecretField } from "../../parts/fields.tsx";
import { given, typed } from "../../parts/form-dialog.tsx";
import { isolated } from "../../parts/isolated.ts";
import { Operate } from "../../parts/operate.tsx";
import { RotationPlan } from "../../parts/rotation-plan.tsx";

type Radius = Schemas["BlastRadius"];

const VALUES = {
  application: "It is an application's secret: the application gets a new one",
  given: "The value that is typed here",
  made: "A value that is made here",
} as const;
const ALPHABETS = ["alphanumeric", "hex", "base64url", "symbols"] as const;

/** Gives the asset a new value and everybody who uses it, once the plan was looked at. */
export function Rotate({ radius: { secret, consumers: all } }: { radius: Radius }) {
  // Who merely may read it is told nothing.
  const consumers = all.filter(({ strength }) => strength === "references");
  if (!isRotatable(secret)) return null;
  const bodyOf = (form: FormData, dryRun: boolean) => {
    const included = form.getAll("consumer").map(String);
    const known = new Set(consumers.map(({ resource }) => resource.id));
    return {
      params: { path: { secret_id: secret } },
      body: {
        ...newValueOf(form),
        ...given({ expiryDays: Number(typed(form, "expiryDays")) || null }),
        ...(included.length < known.size && { includeResources: included }),
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
        title="Rotate"
        about={secret}
        action="Rotate"
        preview={{
          action: "Show the plan",
          first: true,
          load: async (form, rotate) => <RotationPlan of={await rotate(bodyOf(form, true))} />,
        }}
        submit={async (form, rotate) => {
          const { rotationId } = await rotate(bodyOf(form, false));
          return <Link href={createHref(`/rotation/${rotationId}`, {})}>It has begun: see its steps</Link>;
        }}
      >
        <Value />
        <NumberField
          name="expiryDays"
          label="Days the new one holds"
          hint="Empty: as the settings say"
          min={1}
          max={730}
        />
        <Consumers consumers={consumers} />
        <CheckField name="restartApps" label="Restart apps that need it to take the new one" defaultChecked />
        <CheckField name="skipVerification" label="Do not look whether everybody took the new one" />
      </Operate>
    </div>
  );
}

/** Keys and certificates have no value to be replaced: ids are `<vault>.<type>.<name>` and `entra.<tenant>.<app>.<key>`. */
const isRotatable = (id: string): boolean => id.startsWith("entra.") || id.split(".")[1] === "secret";

function Value() {
  const [how, choose] = useState<keyof typeof VALUES>("application");
  return (
    <>
      <ChoiceField name="value" label="The new value" options={VALUES} value={how} choose={choose} />
      {how === "given" && <SecretField name="newValue" label="Value" hint="It is never shown or logged." required />}
      {how === "made" && (
        <>
          <NumberField name="length" label="Characters" required min={8} max={4096} defaultValue="32" />
          <ChoiceField name="alphabet" label="Of" options={ALPHABETS} />
          <CheckField
            name="issuerAccepts"
            label="What checks the value takes any: no other system must know it first"
            required
          />
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

/** Those who are told to take the new value; those left out are still looked at before an old one goes. */
function Consumers({ consumers }: Pick<Radius, "consumers">) {
  const resources = new Map(consumers.map(({ resource }) => [resource.id, resource]));
  return [...resources.values()].map((one) => (
    <CheckField
      key={one.id}
      name="consumer"
      value={one.id}
      label={`Touch ${isolated(one.name)} (${kindOf(one)})`}
      defaultChecked
    />
  ));
}
