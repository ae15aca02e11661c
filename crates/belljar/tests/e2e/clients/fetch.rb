# Fetches a URL.
require "net/http"
headers = { "Authorization" => "Bearer #{ENV.fetch("API_TOKEN")}" }
puts Net::HTTP.get_response(URI(ARGV.fetch(0)), headers).tap(&:value).body
