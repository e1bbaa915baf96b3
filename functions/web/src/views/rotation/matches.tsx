import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { ChoiceField } from "../../parts/fields.tsx";
import { given, typed } from "../../parts/form-dialog.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";

type Match = Schemas["RotationMatch"];

/** Why a secret is thought to hold it; the service's own words for them are longer. */
const EVIDENCE = {
  tag: "its tags name it",
  contentType: "its content type names it",
  confirmed: "a person said so",
  signIn: "its value signed in",
  hint: "its value begins so",
  appIdTag: "it names the application",
  companion: "a secret beside it names the application",
  expiry: "it alone expires with it",
  expirySameDay: "it expires with it, as others do",
  createdTogether: "it was made with it",
  name: "it is called so",
  conflict: "its tags and its content type name different ones",
} as const satisfies Record<Match["evidence"][number], string>;

const VERIFIED = { none: "not tried", hint: "begins as it should", signIn: "signs in" } as const;

/** The vault secrets that are thought to hold what the application signs in with. A rotation writes the certain ones. */
export function Matches({ application }: { application: Schemas["Application"] }) {
  const { appId } = application;
  const params = { path: { app_id: appId }, query: { limit: 100 } };
  const list = api.useInfiniteQuery("get", "/api/automation/rotation/apps/{app_id}/matches", { params }, BY_CURSOR);
  const columns: Column<Match>[] = [
    {
      title: "Secret",
      cell: ({ assetId, enabled }) => (
        <>
          <Link href={`#/inventory/${encodeURIComponent(assetId)}`}>{assetId}</Link>
          {enabled ? "" : " (disabled)"}
        </>
      ),
    },
    {
      title: "Holds it",
      cell: ({ confidence, evidence }) => `${confidence}: ${evidence.map((one) => EVIDENCE[one]).join(", ")}`,
    },
    { title: "Value", cell: ({ verified }) => VERIFIED[verified] },
    { title: "", cell: (match) => <Actions application={application} match={match} /> },
  ];
  return (
    <PagedTable
      of={list}
      columns={columns}
      keyOf={({ assetId }) => assetId}
      label="Vault secrets that hold it"
      none="No vault secret is known to hold it."
    />
  );
}

function Actions({
  application: { appId, credentials },
  match,
}: {
  application: Schemas["Application"];
  match: Match;
}) {
  const { assetId, keyId, evidence } = match;
  const params = { path: { app_id: appId } };
  const isConfirmed = evidence.includes("confirmed");
  const secrets = credentials.filter(({ kind }) => kind === "secret");
  return (
    <>
      <Operate
        operation="verifyRotationMatch"
        title="Prove"
        about={assetId}
        action="Read it and sign in"
        appearance="transparent"
        submit={async (_, verify) => (await verify({ params, body: { assetId } })).message}
      >
        <Text>Its value is read once and tried as the application's secret. It is shown and kept nowhere.</Text>
      </Operate>
      <Operate
        operation="confirmRotationMatch"
        title={isConfirmed ? "Take the word back" : "Confirm"}
        about={assetId}
        action={isConfirmed ? "Take it back" : "Confirm"}
        appearance="transparent"
        submit={(form, confirm) =>
          confirm({
            params,
            body: { assetId, confirmed: !isConfirmed, ...given({ keyId: typed(form, "keyId") }) },
          })
        }
      >
        {isConfirmed ? (
          <Text>A rotation writes it no longer, unless something else proves it.</Text>
        ) : (
          <>
            <Text>A rotation writes the new value into it.</Text>
            <ChoiceField
              name="keyId"
              label="The credential it holds"
              options={Object.fromEntries(secrets.map((one) => [one.keyId, one.displayName ?? one.keyId]))}
              defaultValue={keyId ?? secrets[0]?.keyId ?? ""}
            />
          </>
        )}
      </Operate>
    </>
  );
}
