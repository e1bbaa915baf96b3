/** Puts the page together: theme, client, who is signed in, and the views by their addresses. */
import { FluentProvider, webDarkTheme, webLightTheme } from "@fluentui/react-components";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { Shell } from "./shell/shell.tsx";
import { SignedIn } from "./shell/signed-in.tsx";
import { useIsDark } from "./shell/theme.ts";

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      // The client waits where it is told to; anything else a person tries again.
      retry: false,
      staleTime: 30_000,
      refetchOnWindowFocus: false,
    },
    // What was sent, such as a password, is not kept.
    mutations: { gcTime: 0 },
  },
});

export function App() {
  const theme = useIsDark() ? webDarkTheme : webLightTheme;
  return (
    <FluentProvider theme={theme}>
      <QueryClientProvider client={queries}>
        <SignedIn>
          <Shell />
        </SignedIn>
      </QueryClientProvider>
    </FluentProvider>
  );
}
