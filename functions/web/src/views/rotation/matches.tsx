import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { ChoiceField } from "../../parts/fields.tsx";
import { given, typed } from "../../parts/form-dialog.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";

type Match = Schemas["RotationMatch"];

/** Evidence that a vault secret stores the application's secret, from strong to weak. */
const EVIDENCE = {
  tag: "credential ID in a tag",
  contentType: "credential ID in the content type",
  confirmed: "confirmed by a user",
  signIn: "sign-in with its value succeeded",
  hint: "its value starts with the credential's hint",
  appIdTag: "application ID in a tag",
  companion: "related secret with the application ID",
  expiry: "same expiry date, no other candidate",
  expirySameDay: "same expiry date, several candidates",
  createdTogether: "same creation date",
  name: "similar name",
  conflict: "tag and content type name different credentials",
} as const satisfies Record<Match["evidence"][number], string>;

const VERIFIED = { none: "Not verified", hint: "Hint matches", signIn: "Sign-in succeeded" } as const;
const CONFIDENCE = {
  certain: "Certain",
  likely: "Likely",
  possible: "Possible",
} as const satisfies Record<Match["confidence"], string>;

/** Vault secrets that may store the application's secret. A rotation writes only certain matches. */
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
      title: "Match",
      cell: ({ confidence, evidence }) =>
        `${CONFIDENCE[confidence]}: ${evidence.map((one) => EVIDENCE[one]).join(", ")}`,
    },
    { title: "Verification", cell: ({ verified }) => VERIFIED[verified] },
    { title: "", cell: (match) => <Actions application={application} match={match} /> },
  ];
  return (
    <PagedTable
      of={list}
      columns={columns}
      keyOf={({ assetId }) => assetId}
      label="Matching vault secrets"
      empty="No matching vault secrets. To rotate anyway, clear 'Write the new value to matching vault secrets'. The new value is then stored in the handover vault."
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
        title="Verify match"
        about={assetId}
        action="Read secret and sign in"
        appearance="transparent"
        submit={async (_, verify) => (await verify({ params, body: { assetId } })).message}
      >
        <Text>
          Reads the secret's value once and signs in as the application with it. The value is not shown or stored.
        </Text>
      </Operate>
      <Operate
        operation="confirmRotationMatch"
        title={isConfirmed ? "Remove confirmation" : "Confirm match"}
        about={assetId}
        action={isConfirmed ? "Remove confirmation" : "Confirm match"}
        appearance="transparent"
        submit={(form, confirm) =>
          confirm({
            params,
            body: { assetId, confirmed: !isConfirmed, ...given({ keyId: typed(form, "keyId") }) },
          })
        }
      >
        {isConfirmed ? (
          <Text>
            A rotation no longer writes this secret, unless the policy or the request names it or an earlier rotation
            wrote it.
          </Text>
        ) : (
          <>
            <Text>A rotation writes the new value to this secret.</Text>
            <ChoiceField
              name="keyId"
              label="Credential"
              options={Object.fromEntries(secrets.map((one) => [one.keyId, one.displayName ?? one.keyId]))}
              defaultValue={keyId ?? secrets[0]?.keyId ?? ""}
            />
          </>
        )}
      </Operate>
    </>
  );
}
