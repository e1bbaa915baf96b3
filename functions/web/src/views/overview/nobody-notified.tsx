import { MessageBar, MessageBarBody, MessageBarTitle } from "@fluentui/react-components";
import { api } from "../../api/client.ts";

/** A warning for administrators if the deployment has no addresses for alerts about the service itself. */
export function NobodyNotified() {
  // The page has already read the signed-in user (shell/signed-in.tsx), so this sends no request.
  const { data } = api.useQuery("get", "/auth/me", {}, { staleTime: Number.POSITIVE_INFINITY });
  if (data?.operatorAddressesSet !== false) return null;
  return (
    <MessageBar intent="error" layout="multiline">
      <MessageBarBody>
        <MessageBarTitle>Nobody is notified if this service fails.</MessageBarTitle> Its alerts in Azure Monitor, such
        as "No scan has ended for a day", have no recipients. Set operatorEmailAddresses (Terraform:
        operator_email_addresses) and deploy again.
      </MessageBarBody>
    </MessageBar>
  );
}
