# Fetches a URL.
use strict;
use warnings;
use LWP::UserAgent;
my $answer = LWP::UserAgent->new->get($ARGV[0], Authorization => "Bearer $ENV{API_TOKEN}");
die $answer->status_line, "\n" unless $answer->is_success;
print $answer->decoded_content, "\n";
