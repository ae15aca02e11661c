// An identity provider for tests: `oidc-provider`, without a page for people. A request with the header
// `X-Account` is logged in as this account. The account `ada` is in the group `devs`.
//
// The first line of the output is the issuer. Each line of the input makes a new provider with new keys, and so
// does the last argument.

import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const [, , directory, first] = process.argv;
const library = join(directory, 'node_modules/oidc-provider/lib/index.js');
const { default: Provider } = await import(pathToFileURL(library));

let round = 0;
const keyFor = (algorithm) => {
  const options = {
    RS256: ['rsa', { modulusLength: 2048 }],
    PS256: ['rsa', { modulusLength: 2048 }],
    ES256: ['ec', { namedCurve: 'P-256' }],
    EdDSA: ['ed25519', {}],
  }[algorithm];
  const { privateKey } = generateKeyPairSync(...options);
  round += 1;
  return { ...privateKey.export({ format: 'jwk' }), kid: `key-${round}`, use: 'sig', alg: algorithm };
};

const make = ({ redirect, algorithm, secret }) => {
  const authentication = secret
    ? { client_secret: secret, token_endpoint_auth_method: 'client_secret_basic' }
    : { token_endpoint_auth_method: 'none' };
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: 'belljar',
        redirect_uris: [redirect],
        response_types: ['code'],
        grant_types: ['authorization_code'],
        id_token_signed_response_alg: algorithm,
        ...authentication,
      },
    ],
    claims: { openid: ['sub'], groups: ['groups'] },
    conformIdTokenClaims: false,
    cookies: { keys: ['a key of a test'] },
    enabledJWA: { idTokenSigningAlgValues: ['RS256', 'PS256', 'ES256', 'EdDSA'] },
    features: { devInteractions: { enabled: false } },
    findAccount: (_, accountId) => ({
      accountId,
      claims: () => ({ sub: accountId, groups: accountId === 'ada' ? ['devs'] : ['others'] }),
    }),
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    jwks: { keys: [keyFor(algorithm)] },
    loadExistingGrant: async (context) => {
      const grant = new context.oidc.provider.Grant({
        accountId: context.oidc.session.accountId,
        clientId: context.oidc.client.clientId,
      });
      grant.addOIDCScope('openid groups');
      await grant.save();
      return grant;
    },
    pkce: { required: () => true },
    scopes: ['openid', 'groups'],
    ttl: { Interaction: 60, Session: 60, Grant: 60, AuthorizationCode: 60, IdToken: 300, AccessToken: 60 },
  });
  const answer = provider.callback();
  return async (request, response) => {
    if (!request.url.startsWith('/interaction/')) {
      answer(request, response);
      return;
    }
    const login = { accountId: request.headers['x-account'] };
    await provider.interactionFinished(request, response, { login });
  };
};

let handle = (_, response) => response.end();
const server = createServer((request, response) => handle(request, response));
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
console.log(issuer);
const replace = (line) => {
  handle = make(JSON.parse(line));
  console.log('ready');
};
if (first) replace(first);
for await (const line of createInterface({ input: process.stdin })) replace(line);
process.exit();
